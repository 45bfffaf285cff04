package main_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/pkg/bridge"
)

// soakEnv asks for that many steps of the model test instead of some, and for
// the full counts of tests that repeat themselves.
const soakEnv = "VPCROUTE_SOAK"

// times is how often a test does what it repeats.
func times(usually, soaking int) int {
	if os.Getenv(soakEnv) != "" {
		return soaking
	}
	return usually
}

const (
	someSteps = 2000
	nodes     = 4  // that many models run side by side
	slots     = 12 // pods a model may have at once; its range has room for 9
)

// A model is a node, what is done to it in random order, and what it must look
// like: a simple map beside the kernel's ledger.
type model struct {
	*node
	t      *testing.T
	rand   *rand.Rand
	pods   [slots]*pod
	serial int
	// live are the addresses of the pods that have a port, by slot.
	live map[int][]netip.Addr
	// history tells how it came to what went wrong.
	history []string
}

var modelConf = map[string]any{
	"podCIDRs": []string{"10.244.1.0/28", "fd00:10:244:1::/64"},
	"exclude":  []string{"10.244.1.4", "fd00:10:244:1::8/126"}, // 4 and, of IPv6, 8 to 11
}

const modelCapacity = 13 - 5

// TestModel does random things to nodes, many of them at the same moment: ADD,
// DEL, GC, calls that are killed, namespaces that die, reboots, damaged state.
// No two live pods ever have one address, no free address ever cannot be had,
// and what the kernel holds is what the model says.
func TestModel(t *testing.T) {
	steps := someSteps
	if text := os.Getenv(soakEnv); text != "" {
		var err error
		if steps, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s=%s is not a number of steps", soakEnv, text)
		}
	}
	for i := range nodes {
		t.Run(fmt.Sprint("node ", i), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			m := &model{t: t, rand: rand.New(rand.NewPCG(seed, 0)), live: map[int][]netip.Addr{}}
			m.boot()
			for range steps / nodes {
				m.step()
				if m.compare(); t.Failed() {
					t.Fatalf("seed %d, after:\n%s", seed, strings.Join(m.history[max(0, len(m.history)-30):], "\n"))
				}
			}
		})
	}
}

func (m *model) note(format string, args ...any) {
	m.history = append(m.history, fmt.Sprintf(format, args...))
}

// boot brings the node up, with the state directory that is there and new pods.
func (m *model) boot() {
	conf := maps.Clone(modelConf)
	if m.node != nil {
		conf["stateDir"] = m.conf["stateDir"]
		if err := m.Delete(); err != nil {
			m.t.Fatal(err)
		}
	}
	m.node = newNode(m.t, conf)
	clear(m.live)
	for slot := range m.pods {
		m.renew(slot)
	}
}

// renew puts a new pod into a slot. The one before has no namespace any more.
func (m *model) renew(slot int) {
	if p := m.pods[slot]; p != nil {
		if err := p.Delete(); err != nil {
			m.t.Fatal(err)
		}
	}
	m.serial++
	m.pods[slot] = m.newPod(m.t)
	m.pods[slot].id = fmt.Sprintf("container-%d", m.serial)
}

func (m *model) step() {
	slot := m.rand.IntN(slots)
	switch n := m.rand.IntN(100); {
	case n < 30:
		m.add(slot)
	case n < 50:
		m.del(slot)
	case n < 62:
		m.burst()
	case n < 70:
		m.killed("ADD", slot)
	case n < 77:
		m.killed("DEL", slot)
	case n < 87:
		m.death(slot)
	case n < 92:
		m.gc()
	case n < 98:
		m.damage()
	default:
		m.note("reboot")
		m.boot()
	}
}

// add checks an ADD: it succeeds if and only if there is room.
func (m *model) add(slot int) {
	_, attached := m.live[slot]
	free := modelCapacity - len(m.live)
	a := m.call(m.t, m.pods[slot].request("ADD"))
	m.note("ADD %d: %s", slot, m.outcome(a))
	switch {
	case attached:
		if a.cniErr == nil || a.cniErr.Code != 101 {
			m.t.Errorf("second ADD of %d: %v %s", slot, a.err, a.stdout)
		}
	case free > 0 && a.err != nil:
		m.t.Errorf("ADD of %d with %d addresses free: %s", slot, free, a.stdout)
	case free == 0 && (a.cniErr == nil || a.cniErr.Code != 100):
		m.t.Errorf("ADD of %d with no address free: %v %s", slot, a.err, a.stdout)
	case a.err == nil:
		m.attached(slot, a)
	}
}

// attached notes the addresses of a new pod, once they are seen to be right.
func (m *model) attached(slot int, a answer) {
	got := addresses(m.t, a.result)
	for other, addresses := range m.live {
		if slices.ContainsFunc(got, func(a netip.Addr) bool { return slices.Contains(addresses, a) }) {
			m.t.Errorf("%d got %v, which %d has", slot, got, other)
		}
	}
	if len(got) != 2 || got[0].As4()[3] != got[1].As16()[15] || slices.Contains([]byte{0, 1, 4, 8, 9, 10, 11, 15}, got[0].As4()[3]) {
		m.t.Errorf("%d got %v", slot, got)
	}
	have := linkAddresses(m.t, m.pods[slot], "eth0")
	if len(have) != 3 || !strings.HasPrefix(have[0], got[0].String()+"/") || !strings.HasPrefix(have[1], got[1].String()+"/") {
		m.t.Errorf("%d got %v, and has %v", slot, got, have)
	}
	m.live[slot] = got
}

func (m *model) outcome(a answer) string {
	switch {
	case a.cniErr != nil:
		return a.cniErr.Error()
	case a.result != nil:
		return fmt.Sprint(addresses(m.t, a.result))
	}
	return fmt.Sprint(a.err)
}

func (m *model) del(slot int) {
	r := m.pods[slot].request("DEL")
	if m.rand.IntN(3) == 0 {
		r.netns = ""
	}
	a := m.call(m.t, r)
	m.note("DEL %d: %s", slot, m.outcome(a))
	if a.err != nil {
		m.t.Errorf("DEL of %d: %v %s", slot, a.err, a.stdout)
	}
	delete(m.live, slot)
}

// burst adds and deletes several pods at the same moment.
func (m *model) burst() {
	free := modelCapacity - len(m.live)
	slots := m.rand.Perm(slots)[:2+m.rand.IntN(4)]
	answers := make([]answer, len(slots))
	var all sync.WaitGroup
	adds, added := 0, 0
	for i, slot := range slots {
		verb := "ADD"
		if _, attached := m.live[slot]; attached {
			verb = "DEL"
		} else {
			adds++
		}
		all.Go(func() { answers[i] = m.call(m.t, m.pods[slot].request(verb)) })
	}
	all.Wait()
	for i, slot := range slots {
		_, attached := m.live[slot]
		m.note("at once, %d (attached %t): %s", slot, attached, m.outcome(answers[i]))
		switch {
		case attached:
			if answers[i].err != nil {
				m.t.Errorf("DEL of %d: %s", slot, answers[i].stdout)
			}
			delete(m.live, slot)
		case answers[i].cniErr != nil && answers[i].cniErr.Code != 100:
			m.t.Errorf("ADD of %d: %s", slot, answers[i].stdout)
		}
	}
	for i, slot := range slots {
		if answers[i].result != nil {
			added++
			m.attached(slot, answers[i])
		}
	}
	if added < min(free, adds) {
		m.t.Errorf("%d of %d ADDs at the same moment succeeded with %d addresses free", added, adds, free)
	}
}

// killed starts a call and kills it at some moment. What then stands is taken
// from the kernel: either is right, but it must be one of the two.
func (m *model) killed(verb string, slot int) {
	r := m.pods[slot].request(verb)
	cmd := exec.Command(m.plugin)
	cmd.Env, cmd.Stdin = r.env(), strings.NewReader(m.stdin(m.t, r))
	if err := m.Do(cmd.Start); err != nil {
		m.t.Fatal(err)
	}
	time.Sleep(time.Duration(m.rand.IntN(12_000)) * time.Microsecond)
	_ = cmd.Process.Kill()
	err := cmd.Wait()
	altnames, there := m.ports(m.t)[owner(m.pods[slot]).PortName()]
	m.note("%s %d killed (%v): port %t, claims %v", verb, slot, err, there, altnames)
	if !there {
		delete(m.live, slot)
		return
	}
	m.live[slot] = nil
	for _, name := range altnames {
		m.live[slot] = append(m.live[slot], netip.MustParseAddr(strings.ReplaceAll(name, "-", ":")))
	}
	if len(m.live[slot]) < 2 {
		// It holds no position, but others may find one of its addresses taken:
		// the runtime's DEL comes before anything else.
		m.del(slot)
	}
}

// death ends a pod's namespace without a DEL.
func (m *model) death(slot int) {
	m.note("namespace of %d dies", slot)
	port := owner(m.pods[slot]).PortName()
	m.renew(slot)
	for deadline := time.Now().Add(30 * time.Second); has(m.t, m.Namespace, port); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("%s outlives its pod", port)
		}
	}
	delete(m.live, slot)
}

// gc keeps some of the live pods, and others that are not there.
func (m *model) gc() {
	valid := []any{map[string]any{"containerID": "not-there", "ifname": "eth0"}}
	for slot := range m.live {
		if m.rand.IntN(3) > 0 {
			valid = append(valid, map[string]any{"containerID": m.pods[slot].id, "ifname": "eth0"})
		} else {
			delete(m.live, slot)
		}
	}
	a := m.call(m.t, request{verb: "GC", conf: map[string]any{"cni.dev/valid-attachments": valid}})
	m.note("GC keeps %v: %s", slices.Sorted(maps.Keys(m.live)), m.outcome(a))
	if a.err != nil {
		m.t.Errorf("GC: %s", a.stdout)
	}
}

// damage spoils or removes the hint file.
func (m *model) damage() {
	dir := m.conf["stateDir"].(string)
	files, err := filepath.Glob(filepath.Join(dir, "released-*"))
	if err != nil {
		m.t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			m.t.Fatal(err)
		}
		switch m.rand.IntN(3) {
		case 0:
			data = nil
		case 1:
			for i := range data {
				data[i] = byte(m.rand.Uint32())
			}
		case 2: // sound, but for the stamps
			for i := 16; i < len(data); i++ {
				data[i] = byte(m.rand.Uint32())
			}
		}
		if err := os.WriteFile(f, data, 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
	m.note("%d files damaged", len(files))
	if m.rand.IntN(4) == 0 {
		m.note("state directory removed")
		if err := os.RemoveAll(dir); err != nil {
			m.t.Fatal(err)
		}
	}
}

// compare holds the kernel's ledger against the model's.
func (m *model) compare() {
	m.t.Helper()
	got := m.ports(m.t)
	for slot, want := range m.live {
		port := owner(m.pods[slot]).PortName()
		var names []string
		for _, a := range want {
			names = append(names, bridge.Altname(a))
		}
		if !slices.Equal(got[port], names) {
			m.t.Errorf("%d (%s) should claim %v, and claims %v", slot, port, names, got[port])
		}
		delete(got, port)
	}
	if len(got) > 0 {
		m.t.Errorf("ports of nobody: %v", got)
	}
}
