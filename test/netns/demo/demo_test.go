package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/test/cloud/stands"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// A stage is where a demo runs under test.
type stage struct {
	program, programs, tmp string
}

// setStage builds the demo and the product's programs. Tests of this package
// share the sandbox's namespaces, so they run one after the other.
func setStage(t *testing.T) stage {
	t.Helper()
	s := stage{program: sandbox.Build(t, "./test/netns/demo"), programs: t.TempDir(), tmp: t.TempDir()}
	for name, from := range map[string]string{"vpcroute": "./cmd/cni", "route-controller": "./cmd/route-controller"} {
		if err := os.Symlink(sandbox.Build(t, from), filepath.Join(s.programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if out, err := s.command("down").CombinedOutput(); err != nil {
			t.Errorf("demo down: %v\n%s", err, out)
		}
	})
	return s
}

func (s stage) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program, append([]string{"-programs", s.programs}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+s.tmp, "KEEP=")
	return cmd
}

// empty fails the test unless every namespace, process and file of a demo is
// gone.
func (s stage) empty(t *testing.T) {
	t.Helper()
	if found := s.remains(t); len(found) > 0 {
		t.Errorf("left behind: %q", found)
	}
}

func (s stage) remains(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"/run/netns/*", s.tmp + "/*"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, names...)
	}
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range environs {
		if environ, err := os.ReadFile(path); err == nil && bytes.Contains(environ, []byte("TMPDIR="+s.tmp)) {
			found = append(found, path)
		}
	}
	return found
}

func TestDemo(t *testing.T) {
	s := setStage(t)
	out, err := s.command().CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	for what, pattern := range map[string]string{
		"a pod cut off before routes": `(?m)^ *pod-1a +yes +- +- +yes +yes +- +- +- +- +10\.244\.1\.2 fd00:10:244:1::2$`,
		"a pod that meets all":        `(?m)^ *pod-1a +yes +yes +yes +yes +yes +yes +yes +yes +yes +10\.244\.1\.2 fd00:10:244:1::2$`,
		"pods of the node that left":  `(?m)^ *pod-3a +- +- +yes +- +- +- +- +yes +yes +10\.244\.3\.2 fd00:10:244:3::2$`,
		"the route table":             `(?m)^ *10\.244\.2\.0/24 +172\.31\.0\.12 +node-2 +vpcroute$`,
		"the owner of an address":     `altname 10\.244\.1\.2\b`,
		"the talk during departure":   `\b[1-9][0-9]* messages there and back`,
		"the clean-up":                `Removed every process, namespace and file`,
	} {
		if !regexp.MustCompile(pattern).Match(out) {
			t.Errorf("the demo does not show %s (%s)", what, pattern)
		}
	}
	if bytes.Contains(out, []byte("\x1b")) {
		t.Error("color although the output is no terminal")
	}
	s.empty(t)
}

// The same story over every cloud's emulated API.
func TestDemoOverEveryCloud(t *testing.T) {
	s := setStage(t)
	for name := range stands.Clouds {
		t.Run(name, func(t *testing.T) {
			out, err := s.command("-cloud", name).CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, pattern := range []string{
				`(?m)^ *pod-1a +yes +yes +yes +yes +yes +yes +yes +yes +yes +10\.244\.1\.2$`,
				`(?m)^ *10\.244\.2\.0/24 +172\.31\.0\.12 +node-2 +vpcroute, by the API of ` + name + `$`,
				`# route-controller .*--vpc ` + name,
			} {
				if !regexp.MustCompile(pattern).Match(out) {
					t.Errorf("%s is not in\n%s", pattern, out)
				}
			}
			s.empty(t)
		})
	}
	if out, err := s.command("-cloud", "nimbus").CombinedOutput(); err == nil || !bytes.Contains(out, []byte("want one of aws, azure, gcp, tencent")) {
		t.Errorf("an unknown cloud: %v\n%s", err, out)
	}
}

func TestInterruptedDemoLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		step   string
		signal syscall.Signal
	}{
		{"1.", syscall.SIGINT},
		{"3.", syscall.SIGTERM},
		{"4.", syscall.SIGINT},
		{"6.", syscall.SIGHUP},
		{"8.", syscall.SIGINT},
	} {
		t.Run(fmt.Sprintf("%s at step %s", c.signal, c.step), func(t *testing.T) {
			s := setStage(t)
			cmd := s.command()
			readUntil(t, cmd, c.step)
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
				t.Errorf("ended with %v, want exit status 130", err)
			}
			s.empty(t)
		})
	}
}

// readUntil starts a demo and reads what it prints until a line begins with
// text; the rest fits into the pipe.
func readUntil(t *testing.T, cmd *exec.Cmd, text string) io.ReadCloser {
	t.Helper()
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), text) {
			return pipe
		}
	}
	t.Fatalf("the demo ended before step %s: %v", text, cmd.Wait())
	return nil
}

func TestDemoWhoseReaderGoesLeavesNothing(t *testing.T) {
	s := setStage(t)
	cmd := s.command()
	pipe := readUntil(t, cmd, "2.")
	pipe.Close() // as in "make demo | head"
	if err := cmd.Wait(); err == nil {
		t.Error("the demo claims success although nobody has seen it")
	}
	s.empty(t)
}

func TestKilledDemoIsSweptByTheNext(t *testing.T) {
	s := setStage(t)
	killed := s.command()
	readUntil(t, killed, "6.")
	_ = killed.Process.Kill()
	_ = killed.Wait()
	if len(s.remains(t)) == 0 {
		t.Fatal("a killed demo left nothing, so there is nothing to sweep")
	}
	next := s.command()
	readUntil(t, next, "1.")
	_ = next.Process.Signal(os.Interrupt)
	_ = next.Wait()
	s.empty(t)
}

func TestKeptDemoLivesOnUntilTakenDown(t *testing.T) {
	s := setStage(t)
	cmd := s.command()
	cmd.Env = append(cmd.Env, "KEEP=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	command := regexp.MustCompile(`ip netns exec \S+ bash -c '[^']*'`).Find(out)
	answer, err := exec.Command("bash", "-c", string(command)).CombinedOutput()
	if got := strings.TrimSpace(string(answer)); err != nil || got != "10.244.1.2" {
		t.Errorf("%s: %q, %v; want 10.244.1.2", command, got, err)
	}
	s.followsNodes(t)

	// Another demo runs beside it and leaves it alone.
	other := s.command()
	readUntil(t, other, "3.")
	_ = other.Process.Signal(os.Interrupt)
	_ = other.Wait()
	if !slices.Contains(s.remains(t), "/run/netns/vpcbox1-vpc") {
		t.Error("another demo took the kept one away")
	}

	takeDown := regexp.MustCompile(`(?m)^ *(\S+ down) `).FindSubmatch(out)
	if takeDown == nil {
		t.Fatalf("the demo does not say how to take it down:\n%s", out)
	}
	cmd = exec.Command("sh", "-c", string(takeDown[1]))
	cmd.Env = append(os.Environ(), "TMPDIR="+s.tmp)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", takeDown[1], err, out)
	}
	s.empty(t)
}

// followsNodes edits the kept box's nodes file and waits for the controller.
func (s stage) followsNodes(t *testing.T) {
	t.Helper()
	path := filepath.Join(s.tmp, "vpcbox1", "nodes.yaml")
	nodes, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	moved := bytes.ReplaceAll(nodes, []byte("172.31.0.13"), []byte("172.31.0.12"))
	if err := os.WriteFile(path, moved, 0o644); err != nil {
		t.Fatal(err)
	}
	router := &sandbox.Namespace{Name: "vpcbox1-vpc"}
	deadline := time.Now().Add(waitTime)
	for {
		routes, err := router.Try("ip", "route", "show", "10.244.3.0/24")
		if err == nil && strings.Contains(routes, "via 172.31.0.12 ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the kept controller does not follow the nodes file: %q, %v", routes, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
