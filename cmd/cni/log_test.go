package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vpcroute/vpcroute/pkg/netconf"
)

// A line is what the log says of one call.
type line struct {
	Time         string   `json:"time"`
	Level        string   `json:"level"`
	Verb         string   `json:"msg"`
	Pod          string   `json:"pod"`
	PodUID       string   `json:"podUID"`
	Container    string   `json:"container"`
	Interface    string   `json:"interface"`
	Addresses    []string `json:"addresses"`
	Milliseconds float64  `json:"milliseconds"`
	Version      string   `json:"version"`
	Code         int      `json:"code"`
	Error        string   `json:"error"`
	Warning      string   `json:"warning"`
}

func (n *node) lines(t testing.TB) []line {
	t.Helper()
	var out []line
	for _, text := range strings.Split(strings.TrimSpace(n.log(t)), "\n") {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		out = append(out, l)
	}
	return out
}

// R087: one structured line per call, with what somebody who looks for a pod or
// an address searches for; a failure with its cause and next step.
func TestOneLinePerCall_R087(t *testing.T) {
	n := newNode(t, nil)
	p := n.newPod(t)
	call := func(verb string, conf map[string]any) {
		r := p.request(verb)
		r.args = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_UID=6f1c"
		r.conf = conf
		n.call(t, r)
	}
	call("ADD", nil)
	call("ADD", nil)
	call("DEL", nil)
	call("DEL", map[string]any{"podCIDRs": nil})
	call("GC", map[string]any{"cni.dev/valid-attachments": []any{}})
	call("STATUS", map[string]any{"mtu": 1})
	both := []string{"10.244.1.2", "fd00:10:244:1::2"}
	base := line{Pod: "shop/cart-0", PodUID: "6f1c", Container: p.id, Interface: "eth0", Version: "dev"}
	want := []line{base, base, base, base, base, base}
	for i, verb := range []string{"ADD", "ADD", "DEL", "DEL", "GC", "STATUS"} {
		want[i].Verb, want[i].Level = verb, "INFO"
	}
	want[0].Addresses, want[2].Addresses = both, both
	want[1].Level, want[1].Code = "ERROR", 101
	want[3].Level = "WARN"
	want[5].Level, want[5].Code = "ERROR", 50
	got := n.lines(t)
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(line{}, "Time", "Milliseconds", "Error", "Warning")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, l := range got {
		if l.Time == "" || l.Milliseconds <= 0 || (l.Level == "ERROR") != (l.Error != "") || (l.Level == "WARN") != (l.Warning != "") {
			t.Errorf("%+v", l)
		}
	}
}

// A call that is refused before its configuration is read is in the default log.
func TestRefusedCallsAreLogged(t *testing.T) {
	n := newNode(t, nil)
	p := n.newPod(t)
	for name, change := range map[string]func(*request){
		"not JSON":         func(r *request) { r.stdin = `{"name":` },
		"unknown version":  func(r *request) { r.conf = map[string]any{"cniVersion": "9.0.0"} },
		"odd network name": func(r *request) { r.conf = map[string]any{"name": "a/b"} },
		"no interface":     func(r *request) { r.ifName = "" },
	} {
		t.Run(name, func(t *testing.T) {
			before := len(defaultLog(t))
			r := p.request("ADD")
			r.args = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0"
			change(&r)
			a := n.call(t, r)
			lines := defaultLog(t)
			if a.cniErr == nil || len(lines) != before+1 {
				t.Fatalf("%s: %d lines in the default log, want one more than %d", a.stdout, len(lines), before)
			}
			for _, word := range []string{`"ERROR"`, `"ADD"`, `"shop/cart-0"`, p.id, fmt.Sprint(a.cniErr.Code)} {
				if !strings.Contains(lines[before], word) {
					t.Errorf("%s is not in %s", word, lines[before])
				}
			}
		})
	}
}

func defaultLog(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(netconf.DefaultLogFile)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == '\n' })
}

func TestLogLevels(t *testing.T) {
	for level, want := range map[string]int{"debug": 3, "info": 3, "warn": 2, "error": 1} {
		n := newNode(t, map[string]any{"logLevel": level})
		p := n.newPod(t)
		p.add(t)
		n.call(t, p.request("ADD"))
		r := p.request("DEL")
		r.conf = map[string]any{"mtu": "unreadable"}
		n.call(t, r)
		if got := n.lines(t); len(got) != want {
			t.Errorf("at %s: %d lines, want %d: %+v", level, len(got), want, got)
		}
	}
}

// The log's size is limited, also when calls at the same moment find it full, and
// no line is ever torn.
func TestLogIsLimited(t *testing.T) {
	n := newNode(t, nil)
	file := n.conf["logFile"].(string)
	filler := strings.Repeat(`{"msg":"filler"}`+"\n", (5<<20)/17)
	if err := os.WriteFile(file, []byte(filler), 0o640); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() { n.call(t, request{verb: "DEL", container: "x", ifName: "eth0"}) })
	}
	all.Wait()
	if info, err := os.Stat(file); err != nil || info.Size() > 1<<20 {
		t.Errorf("the log was not begun anew: %v, %v", info.Size(), err)
	}
	if info, err := os.Stat(file + ".1"); err != nil || info.Size() > 5<<20 {
		t.Errorf("the older half: %v", err)
	}
	n.lines(t)
}
