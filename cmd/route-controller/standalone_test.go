package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

const patience = time.Minute

// A station is the built program with a namespace whose kernel table is its
// route table, and a nodes file.
type station struct {
	t       *testing.T
	program string
	vpc     *sandbox.Namespace
	dir     string
}

func newStation(t *testing.T) *station {
	t.Helper()
	s := &station{t: t, program: sandbox.Build(t, "./cmd/route-controller"), vpc: sandbox.New(t, "vpc"), dir: t.TempDir()}
	s.vpc.Run(t, "ip", "link", "add", "net0", "type", "bridge")
	s.vpc.Run(t, "ip", "addr", "add", "172.31.0.1/24", "dev", "net0")
	s.vpc.Run(t, "ip", "link", "set", "net0", "up")
	return s
}

func (s *station) path(name string) string { return filepath.Join(s.dir, name) }

// nodes writes a nodes file: node i has range 10.244.i.0/24 and address
// 172.31.0.1i.
func (s *station) nodes(numbers ...int) {
	s.t.Helper()
	var text strings.Builder
	for _, i := range numbers {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Node\nmetadata: {name: n%d, uid: u%[1]d}\nspec: {podCIDRs: [10.244.%[1]d.0/24]}\nstatus: {addresses: [{type: InternalIP, address: 172.31.0.1%[1]d}]}\n", i)
	}
	if err := os.WriteFile(s.path("new"), []byte(text.String()), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(s.path("new"), s.path("nodes.yaml")); err != nil {
		s.t.Fatal(err)
	}
}

// command is the program with the flags that every test needs.
func (s *station) command(args ...string) *exec.Cmd {
	return exec.Command(s.program, append(args, "--vpc", "linux", "--linux-netns", s.vpc.Path(), "--cluster-cidr", "10.244.0.0/16", "--cluster-cidr", "fd00:10:244::/48",
		"--nodes", s.path("nodes.yaml"), "--ledger", s.path("ledger"))...)
}

// run runs the program and returns its exit code and what it printed.
func (s *station) run(args ...string) (code int, out, logs string) {
	s.t.Helper()
	cmd := s.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

func (s *station) routes() string {
	s.t.Helper()
	return s.vpc.Run(s.t, "ip", "-4", "route", "show", "root", "10.244.0.0/16")
}

func (s *station) awaitRoutes(want ...string) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		var got []string
		for line := range strings.Lines(s.routes()) {
			got = append(got, strings.Join(strings.Fields(line)[:3], " "))
		}
		if cmp.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("routes are %q, want %q", got, want)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// start starts the controller; stop sends SIGTERM and returns its log.
func (s *station) start(args ...string) (stop func() string) {
	s.t.Helper()
	cmd := s.command(args...)
	var logs bytes.Buffer
	cmd.Stderr = &logs
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	once := sync.OnceValue(func() string {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			s.t.Errorf("the controller ends with %v\n%s", err, &logs)
		}
		return logs.String()
	})
	s.t.Cleanup(func() { once() })
	return once
}

func TestControllerFollowsTheFile(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.vpc.Run(t, "ip", "route", "add", "10.244.200.0/24", "via", "172.31.0.99")
	s.nodes(1, 2)
	stop := s.start()
	s.awaitRoutes("10.244.1.0/24 via 172.31.0.11", "10.244.2.0/24 via 172.31.0.12", "10.244.200.0/24 via 172.31.0.99")
	s.nodes(2, 3)
	s.awaitRoutes("10.244.2.0/24 via 172.31.0.12", "10.244.3.0/24 via 172.31.0.13", "10.244.200.0/24 via 172.31.0.99")

	// One controller at a time.
	if code, _, logs := s.run(); code != 1 || !strings.Contains(logs, "in use by another process") {
		t.Errorf("a second controller: code %d, %s", code, logs)
	}
	logs := stop()
	for _, want := range []string{"ConflictFound", "10.244.200.0/24", "the routes stay"} {
		if !strings.Contains(logs, want) {
			t.Errorf("the log does not name %q:\n%s", want, logs)
		}
	}
	s.awaitRoutes("10.244.2.0/24 via 172.31.0.12", "10.244.3.0/24 via 172.31.0.13", "10.244.200.0/24 via 172.31.0.99")

	// R081
	code, out, _ := s.run("cleanup")
	if code != 0 || !strings.Contains(out, "2 of our routes deleted, 0 left; 2 ledger entries forgotten") || !strings.Contains(out, "not ours: 10.244.200.0/24") {
		t.Errorf("cleanup: code %d, %s", code, out)
	}
	s.awaitRoutes("10.244.200.0/24 via 172.31.0.99")
	if code, out, _ := s.run("cleanup", "-o", "json"); code != 0 || !strings.Contains(out, `"deleted": 0`) {
		t.Errorf("cleanup again: code %d, %s", code, out)
	}
}

// R082: pods in the range of a subnet would not be reached, nor the machines in
// it, so nothing is begun. A default route overlaps everything and means nothing.
func TestRefusesToStartInsideASubnet(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.vpc.Run(t, "ip", "route", "add", "default", "via", "172.31.0.1")
	s.vpc.Run(t, "ip", "addr", "add", "10.244.128.1/20", "dev", "net0")
	s.nodes(1)
	code, _, logs := s.run()
	if code != 1 {
		t.Errorf("code %d, want 1", code)
	}
	for _, want := range []string{"refusing to start", "10.244.0.0/16 overlaps the connected subnet 10.244.128.0/20", "give the cluster a range that no subnet uses"} {
		if !strings.Contains(logs, want) {
			t.Errorf("it does not say %q:\n%s", want, logs)
		}
	}
	if strings.Contains(s.routes(), "via") {
		t.Errorf("routes were made:\n%s", s.routes())
	}
	s.vpc.Run(t, "ip", "addr", "del", "10.244.128.1/20", "dev", "net0")
	s.start()
	s.awaitRoutes("10.244.1.0/24 via 172.31.0.11")
}

// R093: a plan is printed with its reasons, and nothing is written.
func TestDryRun(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	for _, r := range []string{"10.244.6.0/24 via 172.31.0.60", "10.244.7.0/24 via 172.31.0.70", "10.244.50.0/24 via 172.31.0.50", "10.244.51.0/24 via 172.31.0.51", "10.244.52.0/24 via 172.31.0.52"} {
		s.vpc.Run(t, "ip", append([]string{"route", "add", "proto", "201"}, strings.Fields(r)...)...)
	}
	s.nodes(1, 2, 3, 4, 5, 6, 7)
	before := s.routes()
	code, out, logs := s.run("--dry-run", "-o", "json")
	if code != 0 {
		t.Fatalf("code %d: %s", code, logs)
	}
	var plan struct {
		Changes []struct{ Op, Destination, NextHop, OldNextHop, Node, Reason string }
	}
	if err := json.Unmarshal([]byte(out), &plan); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, c := range plan.Changes {
		counts[c.Op]++
		if c.Reason == "" {
			t.Errorf("%v has no reason", c)
		}
	}
	if diff := cmp.Diff(map[string]int{"create": 5, "replace": 2, "delete": 3}, counts); diff != "" {
		t.Error(diff)
	}
	_, table, _ := s.run("plan")
	for _, want := range []string{"CHANGE", "create", "10.244.1.0/24", "replace", "held back", "10 to change, 0 held back, 0 conflicts, 0 without a route"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table does not name %q:\n%s", want, table)
		}
	}
	if after := s.routes(); after != before {
		t.Errorf("routes were changed:\n%s\nbefore:\n%s", after, before)
	}
	if _, err := os.Stat(s.path("ledger")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a ledger was made: %v", err)
	}
}

// Everything that is wrong with the input is told at once, and nothing is done.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	for _, c := range []struct {
		situation string
		args      []string
		nodes     string
		want      []string
	}{
		{"no flags", nil, "", []string{"--nodes", "--vpc", "--cluster-cidr", "10.244.0.0/16", "for example"}},
		{
			"everything wrong",
			[]string{"--nodes", "x", "--vpc", "azurite", "--cluster-cidr", "10.244.0.1/16", "--cluster-cidr", "banana", "-o", "xml", "--cluster-id", "", "--qps", "-1", "--log-format", "x", "--log-level", "y"},
			"",
			[]string{`"azurite"`, "linux", `"10.244.0.1/16"`, "10.244.0.0/16", `"banana"`, `"xml"`, "--cluster-id", "--qps is -1", `--log-format is "x"`},
		},
		{"an unknown log level", []string{"--log-level", "y"}, "", []string{`--log-level is "y"`}},
		{"overlapping ranges", []string{"--nodes", "x", "--vpc", "linux", "--cluster-cidr", "10.244.0.0/16", "--cluster-cidr", "10.0.0.0/8"}, "", []string{"overlap"}},
		// R082
		{"a range of the Services", []string{"--nodes", "x", "--vpc", "linux", "--cluster-cidr", "10.244.0.0/16", "--service-cidr", "10.244.96.0/20"}, "", []string{"--cluster-cidr 10.244.0.0/16 overlaps --service-cidr 10.244.96.0/20", "a range of their own"}},
		{"an empty nodes file", []string{"--nodes", "FILE", "--vpc", "linux", "--cluster-cidr", "10.244.0.0/16"}, "", []string{"holds no Nodes", "kubectl get nodes -o yaml"}},
		{"two tables named", []string{"--nodes", "x", "--vpc", "linux", "--cluster-cidr", "10.244.0.0/16", "--linux-table", "7", "--linux-vrf", "red"}, "", []string{"--vpc linux", "7", "red"}},
		{"an unknown flag", []string{"--nodess", "x"}, "", []string{"--nodess"}},
		{"an unknown command", []string{"clean"}, "", []string{"clean"}},
		{"no such file", []string{"--nodes", "/nowhere", "--vpc", "linux", "--cluster-cidr", "10.244.0.0/16"}, "", []string{"nodes file", "/nowhere"}},
		{"a file that is no list", []string{"--nodes", "FILE", "--vpc", "linux", "--cluster-cidr", "10.244.0.0/16"}, "kind: Pod\n", []string{"nodes file", "apiVersion"}},
	} {
		for _, command := range []string{"", "plan"} {
			t.Run(c.situation+" "+command, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "nodes.yaml")
				if err := os.WriteFile(file, []byte(c.nodes), 0o600); err != nil {
					t.Fatal(err)
				}
				args := []string{}
				if command != "" && c.situation != "an unknown command" {
					args = append(args, command)
				}
				for _, a := range c.args {
					args = append(args, strings.ReplaceAll(a, "FILE", file))
				}
				out, err := exec.Command(s.program, args...).CombinedOutput()
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.ExitCode() != 1 {
					t.Fatalf("%v: %s", err, out)
				}
				for _, want := range c.want {
					if !strings.Contains(string(out), want) {
						t.Errorf("does not name %q:\n%s", want, out)
					}
				}
			})
		}
	}
}
