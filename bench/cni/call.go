package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A verb is a CNI command.
type verb string

const (
	add     verb = "ADD"
	del     verb = "DEL"
	version verb = "VERSION"
)

// A cost is what a call took.
type cost struct {
	wall time.Duration // from the start of the process to its end
	cpu  time.Duration // of the process and those that it called
}

// call runs the plugin once for a pod, as a runtime would.
func (n *node) call(v verb, p *pod) (cost, error) {
	var took cost
	err := n.ns.Do(func() error {
		cmd, stdout := n.command(v, p, filepath.Join(n.bin, n.programs[0]))
		start := time.Now()
		err := cmd.Run()
		took.wall = time.Since(start)
		if err != nil {
			return fmt.Errorf("%s of %s: %w: %s", v, p.id, err, bytes.TrimSpace(stdout.Bytes()))
		}
		took.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		if v == add {
			p.result = bytes.Clone(stdout.Bytes())
		}
		return nil
	})
	return took, err
}

// command is the plugin's process with its environment and input. It is to be
// started on a thread inside the node's namespace.
func (n *node) command(v verb, p *pod, program string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.Command(program, args...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"),
		"CNI_COMMAND=" + string(v),
		"CNI_CONTAINERID=" + p.id,
		"CNI_NETNS=" + p.ns.Path(),
		"CNI_IFNAME=eth0",
		"CNI_PATH=" + n.bin,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + p.id + ";K8S_POD_INFRA_CONTAINER_ID=" + p.id,
	}
	conf := n.conf
	if v == del && p.result != nil {
		conf = withPrevResult(n.conf, p.result)
	}
	cmd.Stdin = bytes.NewReader(conf)
	stdout := &bytes.Buffer{}
	cmd.Stdout = stdout
	cmd.Stderr = os.Stderr
	return cmd, stdout
}

// withPrevResult is the configuration of a DEL, which carries the ADD's result.
func withPrevResult(conf []byte, result json.RawMessage) []byte {
	head := bytes.TrimSuffix(bytes.TrimSpace(conf), []byte("}"))
	return fmt.Appendf(nil, `%s,"prevResult":%s}`, head, bytes.TrimSpace(result))
}

// atOnce makes a call for each pod, all started together. Its cost is the time
// until the last one ended, and the processor time of all.
func (n *node) atOnce(v verb, pods []*pod) (cost, error) {
	costs, errs := make([]cost, len(pods)), make([]error, len(pods))
	var wg sync.WaitGroup
	start := time.Now()
	for i, p := range pods {
		wg.Go(func() { costs[i], errs[i] = n.call(v, p) })
	}
	wg.Wait()
	total := cost{wall: time.Since(start)}
	for i, err := range errs {
		if err != nil {
			return cost{}, err
		}
		total.cpu += costs[i].cpu
	}
	return total, nil
}

// launchVerb is the first argument that makes this program a launcher.
const launchVerb = "launch"

// launch runs a program and prints its peak memory in KiB, that of the programs
// it calls included where they need more. A process of its own is needed for
// that: the kernel counts what the starting process had before the exec as the
// new program's peak, and this one is small, as it has done nothing yet.
func launch(args []string) int {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
	if out, err := cmd.Output(); err != nil {
		fmt.Fprintf(os.Stderr, "%v: %s\n", err, out)
		return 1
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(usage.Maxrss)
	return 0
}

// peak runs the plugin once for a pod and returns its peak memory in MiB.
func (n *node) peak(v verb, p *pod) (float64, error) {
	var kib int
	err := n.ns.Do(func() error {
		cmd, stdout := n.command(v, p, "/proc/self/exe", launchVerb, filepath.Join(n.bin, n.programs[0]))
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s of %s: %w", v, p.id, err)
		}
		var err error
		kib, err = strconv.Atoi(strings.TrimSpace(stdout.String()))
		return err
	})
	return float64(kib) / 1024, err
}
