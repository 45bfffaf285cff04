package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/vpcroute/vpcroute/test/runtime/cri"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

// workers is how many calls the kubelet has under way at once in these tests.
const workers = 8

// runAll creates pods, several at once, and returns their sandboxes.
func runAll(t *testing.T, n *cri.Node, pods ...cri.Pod) []*cri.Sandbox {
	t.Helper()
	ids := make([]string, len(pods))
	errs := atOnce(len(pods), workers, func(i int) (err error) {
		ids[i], err = n.Run(t.Context(), pods[i])
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("run %d pods: %v", len(pods), err)
	}
	var sandboxes []*cri.Sandbox
	for _, id := range ids {
		sandboxes = append(sandboxes, status(t, n, id))
	}
	return sandboxes
}

// removeAll removes sandboxes, several at once.
func removeAll(t *testing.T, n *cri.Node, sandboxes []*cri.Sandbox) {
	t.Helper()
	errs := atOnce(len(sandboxes), workers, func(i int) error {
		return n.Remove(t.Context(), sandboxes[i].ID)
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("remove %d sandboxes: %v", len(sandboxes), err)
	}
}

// atOnce calls f for 0 to count-1, so many at once, and returns its errors.
func atOnce(count, limit int, f func(int) error) []error {
	errs := make([]error, count)
	slots := make(chan struct{}, limit)
	var group sync.WaitGroup
	for i := range count {
		slots <- struct{}{}
		group.Go(func() {
			errs[i] = f(i)
			<-slots
		})
	}
	group.Wait()
	return errs
}

// numbered are pods of these names with a number after them, from 1.
func numbered(name string, count int) []cri.Pod {
	var pods []cri.Pod
	for i := range count {
		pods = append(pods, pod(fmt.Sprintf("%s-%d", name, i+1)))
	}
	return pods
}

// checkDistinct fails the test when two sandboxes share an address or one lacks
// a family.
func checkDistinct(t *testing.T, sandboxes ...*cri.Sandbox) {
	t.Helper()
	owner := map[netip.Addr]string{}
	for _, s := range sandboxes {
		if len(s.Addresses) != 2 {
			t.Errorf("pod %s has addresses %v, want one of each family", s.Pod.Name, s.Addresses)
		}
		for _, a := range s.Addresses {
			if other, ok := owner[a]; ok {
				t.Errorf("pods %s and %s both have address %s", other, s.Pod.Name, a)
			}
			owner[a] = s.Pod.Name
		}
	}
}

func TestRuntimeKilledAndRestarted(t *testing.T) {
	n := startNode(t, chained)
	before := settled(t, n)
	old := runAll(t, n, numbered("old", 5)...)

	n.KillRuntime(t)
	n.StartRuntime(t)

	for _, s := range old {
		if diff := cmp.Diff(s, status(t, n, s.ID), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("sandbox of pod %s across the restart (-before +after):\n%s", s.Pod.Name, diff)
		}
		listening(t, s)
		checkCaller(t, n.Network.Do, onPort(s.Addresses[1], 8080), netip.MustParseAddr("fd00:10:244:1::1"))
	}
	young := runAll(t, n, numbered("young", 3)...)
	checkDistinct(t, append(young, old...)...)
	removeAll(t, n, old)
	removeAll(t, n, young)
	checkInventory(t, n, before)
}

// A runtime killed while it adds pods never tidies up all that it has made for
// them, but on the network nothing is left of those that it knows of.
func TestRuntimeKilledWhileItAddsPods(t *testing.T) {
	n := startNode(t, alone)
	before := settled(t, n)
	first := run(t, n, pod("stays"))

	pods := numbered("cut-off", 10)
	returned := make(chan struct{}, len(pods))
	done := make(chan []error)
	go func() {
		done <- atOnce(len(pods), workers, func(i int) error {
			_, err := n.Run(t.Context(), pods[i])
			returned <- struct{}{}
			return err
		})
	}()
	<-returned
	n.KillRuntime(t)
	if err := errors.Join(<-done...); err == nil {
		t.Fatal("all pods were added before the runtime was killed: nothing was tested")
	}

	n.StartRuntime(t)
	after := run(t, n, pod("new"))
	checkDistinct(t, first, after)
	ids, err := n.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		remove(t, n, id)
	}
	checkInventory(t, n, before, "shim", "cgroup", "mount", "file")
}

// The kubelet gives a call up after some minutes and the runtime then ends the
// plugin where it is.
func TestCallsCutOff(t *testing.T) {
	n := startNode(t, alone)
	before := settled(t, n)
	pods := numbered("cut-off", 16)
	errs := atOnce(len(pods), workers, func(i int) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*25*time.Millisecond)
		defer cancel()
		_, err := n.Run(ctx, pods[i])
		return err
	})
	if errors.Join(errs...) == nil {
		t.Fatal("every call ended in time: nothing was tested")
	}
	after := run(t, n, pod("new"))
	if len(after.Addresses) != 2 {
		t.Errorf("a pod after that has addresses %v", after.Addresses)
	}
	removeFailed(t, n)
	checkInventory(t, n, before)
}

func TestNamespaceLost(t *testing.T) {
	n := startNode(t, chained)
	before := settled(t, n)
	foreign := sandbox.New(t, "foreign")
	foreign.Run(t, "ip", "link", "add", "eth0", "type", "veth")

	unmount := func(path string) error { return unix.Unmount(path, unix.MNT_DETACH) }
	for _, tc := range []struct {
		situation string
		lose      func(path string) error
	}{
		{"unmounted, the file is left", unmount},
		{"unmounted and removed", func(path string) error {
			return errors.Join(unmount(path), os.Remove(path))
		}},
		{"a file with text in its place", func(path string) error {
			return errors.Join(unmount(path), os.WriteFile(path, []byte("not a namespace"), 0o644))
		}},
		{"another namespace in its place", func(path string) error {
			return errors.Join(unmount(path), unix.Mount(foreign.Path(), path, "", unix.MS_BIND, ""))
		}},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			s := run(t, n, pod("web"))
			// While something holds the namespace its links live, so that only DEL
			// can be what removes them.
			held, err := ns.GetNS(s.Netns)
			if err != nil {
				t.Fatal(err)
			}
			defer held.Close()
			if err := tc.lose(s.Netns); err != nil {
				t.Fatal(err)
			}
			remove(t, n, s.ID)
			_ = os.Remove(s.Netns) // the runtime keeps what is no namespace
			checkInventory(t, n, before)
			foreign.Run(t, "ip", "link", "show", "eth0")
		})
	}
}

// R027: after a reboot the kubelet destroys the sandboxes from before it while it
// creates those that take their place.
func TestPreviousBoot(t *testing.T) {
	n := startNode(t, alone)
	old := runAll(t, n, numbered("old", 40)...)

	n.Reboot(t)

	before := without(settled(t, n), old...)
	removed := make(chan error)
	go func() {
		removed <- errors.Join(atOnce(len(old), len(old), func(i int) error {
			return n.Remove(t.Context(), old[i].ID)
		})...)
	}()
	young := runAll(t, n, numbered("young", 10)...)
	if err := <-removed; err != nil {
		t.Errorf("remove sandboxes of the previous boot: %v", err)
	}
	checkDistinct(t, young...)
	for _, s := range young {
		listening(t, s)
		checkCaller(t, n.Network.Do, onPort(s.Addresses[0], 8080), netip.MustParseAddr("10.244.1.1"))
	}
	removeAll(t, n, young)
	checkInventory(t, n, before)
}
