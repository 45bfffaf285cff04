package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc/linux"
	"github.com/vpcroute/vpcroute/test/netns"
)

const (
	module = "github.com/vpcroute/vpcroute"
	// waitTime is how long anything that must happen may take, for example the
	// controller to follow a change.
	waitTime = 30 * time.Second
)

// A demo is one run of the story.
type demo struct {
	*screen
	box        *netns.Box
	cloud      string // whose API the controller talks to; empty for none
	servers    *netns.Servers
	api        *netns.Process // the cloud's, when there is one
	controller *netns.Process
	begun      time.Time // when everything was built
}

// show tells the story and removes everything, unless it is to be kept.
func show(ctx context.Context, programs, cloud string, keep bool) (err error) {
	d := &demo{screen: newScreen(os.Stdout), cloud: cloud}
	if err := checkCloud(cloud); err != nil {
		return err
	}
	if err := d.sweep(); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root: try sudo make demo")
	}
	d.box, err = netns.Raise(netns.Config{Programs: programs, IPv4Only: cloud != "" || !netns.HasIPv6()})
	if err != nil {
		return fmt.Errorf("raise the box: %w", err)
	}
	kept := false
	defer func() {
		if ctx.Err() != nil {
			err = errInterrupted // and not what came of it
		}
		if !kept {
			err = errors.Join(err, d.remove())
		}
	}()
	if err := d.tell(ctx); err != nil || !keep {
		return err
	}
	err = d.keep(ctx)
	kept = err == nil
	return err
}

var errInterrupted = errors.New("interrupted")

// sweep removes what runs left behind that had no chance to clean up.
func (d *demo) sweep() error {
	_, left, err := netns.Boxes("")
	for _, dir := range left {
		d.say("removing %s, left behind by an interrupted run", filepath.Base(dir))
		err = errors.Join(err, netns.TearDown(dir))
	}
	return err
}

func (d *demo) tell(ctx context.Context) error {
	parts := []func(context.Context) error{
		d.introduce, d.build, d.attach, d.before, d.program, d.after, d.owner, d.departure,
	}
	for _, part := range parts {
		if err := part(ctx); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) introduce(context.Context) error {
	d.step("A VPC in a box: namespaces %s-*, files in %s", d.box.Name, d.box.Dir)
	d.say(`   pod-1a  pod-1b          pod-2a  pod-2b          pod-3a  pod-3b
      └─cbr0─┘                └─cbr0─┘                └─cbr0─┘
       node-1                  node-2                  node-3
          └───────────────────── vpc ─────────────────────┘
vpc is the cloud's router: its kernel routing table is the VPC's route table.`)
	return nil
}

// build builds the programs, unless built ones were named.
func (d *demo) build(ctx context.Context) error {
	d.step("The programs: the CNI plugin and the route controller")
	built := filepath.Join(d.box.Dir, "bin") == d.box.Programs
	begun := time.Now()
	if built {
		d.say("building, which takes minutes the first time")
	}
	lines := []string{"PROGRAM\tFROM\tSIZE"}
	for _, p := range []struct{ name, from string }{{"vpcroute", "cmd/cni"}, {"route-controller", "cmd/route-controller"}} {
		path := filepath.Join(d.box.Programs, p.name)
		if built {
			cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, module+"/"+p.from)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("go build ./%s: %w\n%s", p.from, err, out)
			}
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%.1f MB", p.name, p.from, float64(info.Size())/1e6))
	}
	d.rows(lines...)
	if built {
		d.say("built in %s", time.Since(begun).Round(100*time.Millisecond))
	}
	d.begun = time.Now()
	return nil
}

// attach has the plugin attach two pods on every node.
func (d *demo) attach(ctx context.Context) error {
	d.step("Pods, attached by the plugin")
	lines := []string{"NODE\tUPLINK\tPOD\tADDRESSES\tADD TOOK"}
	for i, n := range d.box.Nodes {
		for _, letter := range []string{"a", "b"} {
			begun := time.Now()
			p, err := n.Attach(ctx, fmt.Sprintf("pod-%d%s", i+1, letter))
			if err != nil {
				return err
			}
			lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s", n.Name, join(n.Addresses), p.Name,
				join(p.Addresses), time.Since(begun).Round(100*time.Microsecond)))
		}
	}
	d.rows(lines...)
	var err error
	d.servers, err = netns.Serve(d.box.Hosts()...)
	return err
}

func join(addresses []netip.Addr) string {
	var text []string
	for _, a := range addresses {
		text = append(text, a.String())
	}
	return strings.Join(text, " ")
}

func (d *demo) before(ctx context.Context) error {
	d.step("Before there are routes: who reaches whom, asked over TCP and UDP, %s", d.families())
	if err := d.ask(ctx); err != nil {
		return err
	}
	d.say("No pod reaches a pod of another node: the VPC has never heard of their addresses.")
	return nil
}

func (d *demo) families() string {
	if len(d.box.ClusterCIDRs) == 1 {
		return "IPv4"
	}
	return "IPv4 and IPv6"
}

// ask prints the matrix and fails where it is not what routes to these nodes'
// pods should make it.
func (d *demo) ask(ctx context.Context, routed ...*netns.Node) error {
	expected := netns.Expect(routed...)
	var cells []netns.Cell
	for _, cluster := range d.box.ClusterCIDRs {
		cells = append(cells, netns.Matrix(ctx, d.box.Hosts(), cluster.Addr(), expected)...)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	d.matrix(d.box.Hosts(), cells)
	return errors.Join(netns.Judge(cells, expected)...)
}

// program starts the controller and shows what it writes.
func (d *demo) program(ctx context.Context) error {
	if d.cloud == "" {
		d.step("The route controller reads the cluster's Nodes and writes the VPC's route table")
	} else if err := d.emulate(); err != nil {
		return err
	}
	if err := d.box.WriteNodes(d.box.Objects()...); err != nil {
		return err
	}
	var err error
	if d.controller, err = d.box.StartController(nil); err != nil {
		return err
	}
	d.say("# %s", d.controller)
	if err := d.routes(ctx, d.box.Nodes...); err != nil {
		return err
	}
	return d.table()
}

// routes waits until the VPC's route table leads to the pods of just these nodes.
func (d *demo) routes(ctx context.Context, nodes ...*netns.Node) error {
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	err := d.box.AwaitRoutes(ctx, netns.RoutesTo(nodes...)...)
	if err == nil || d.controller == nil {
		return err
	}
	log, _ := d.controller.Log()
	return fmt.Errorf("%w\nthe controller says:\n%s", err, log)
}

// table prints the VPC's route table.
func (d *demo) table() error {
	routes, err := d.box.Routes()
	if err != nil {
		return err
	}
	lines := []string{"DESTINATION\tNEXT HOP\tNODE\tWRITTEN BY"}
	for _, r := range routes {
		nextHop, writer := r.Via.String(), "somebody else"
		switch {
		case !r.Via.IsValid():
			nextHop, writer = "local", "the VPC"
		case r.Protocol == linux.DefaultProtocol:
			writer = "vpcroute"
		case d.cloud != "":
			writer = "vpcroute, by the API of " + d.cloud
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s", r.Destination, nextHop, d.nodeOf(r), writer))
	}
	d.rows(lines...)
	return nil
}

func (d *demo) nodeOf(r netns.Route) string {
	for _, n := range d.box.Nodes {
		if a := n.Address(r.Destination.Addr()); a == r.Via || a == r.Destination.Addr() {
			return n.Name
		}
	}
	return "-"
}

func (d *demo) after(ctx context.Context) error {
	d.step("With routes")
	if err := d.ask(ctx, d.box.Nodes...); err != nil {
		return err
	}
	d.say("Everyone reaches everyone, and is seen under an address of its own: no NAT, no overlay.")
	d.say("(To its own pods a node speaks as their gateway, the first address of its podCIDR.)")
	return nil
}

// owner shows how the kernel itself answers whose an address is.
func (d *demo) owner(ctx context.Context) error {
	node := d.box.Nodes[0]
	address := node.Pods[0].Addresses[0].String()
	d.step("Whose address is %s? The host end of the pod's veth carries it; there is no other list", address)
	ip, err := exec.LookPath("ip")
	if err != nil {
		d.say("(here would be the answer of ip link show %s, but iproute2 is not installed)", address)
		return nil
	}
	d.say("# ip -n %s link show %s", node.Namespace.Name, address)
	out, err := exec.CommandContext(ctx, ip, "-n", node.Namespace.Name, "link", "show", address).CombinedOutput()
	d.say("%s", out)
	return err
}

// departure takes a node out of the cluster and in again, while two pods of
// other nodes talk.
func (d *demo) departure(ctx context.Context) error {
	last := len(d.box.Nodes) - 1
	staying, leaving := d.box.Nodes[:last], d.box.Nodes[last]
	d.step("%s leaves the cluster: its Node is gone from the list", leaving.Name)
	from, to := staying[0].Pods[0], staying[1].Pods[0]
	flow, err := netns.StartFlow(ctx, &from.Host, to.Addresses[0])
	if err != nil {
		return err
	}
	if err := errors.Join(d.leave(ctx, staying), flow.Stop()); err != nil {
		return err
	}
	d.say("Its routes are gone and its pods with them. %s and %s talked on over one connection:", from.Name, to.Name)
	d.say("%d messages there and back meanwhile, none lost.", flow.Turns())

	d.step("%s comes back", leaving.Name)
	if err := d.box.WriteNodes(d.box.Objects()...); err != nil {
		return err
	}
	if err := d.routes(ctx, d.box.Nodes...); err != nil {
		return err
	}
	if err := d.ask(ctx, d.box.Nodes...); err != nil {
		return err
	}
	d.say("That was %s after the build.", time.Since(d.begun).Round(100*time.Millisecond))
	return nil
}

func (d *demo) leave(ctx context.Context, staying []*netns.Node) error {
	var objects []netns.NodeObject
	for _, n := range staying {
		objects = append(objects, n.Object())
	}
	if err := d.box.WriteNodes(objects...); err != nil {
		return err
	}
	if err := d.routes(ctx, staying...); err != nil {
		return err
	}
	if err := d.table(); err != nil {
		return err
	}
	return d.ask(ctx, staying...)
}

// remove takes everything away.
func (d *demo) remove() error {
	if d.servers != nil {
		_ = d.servers.Close()
	}
	err := d.box.TearDown()
	if err == nil {
		d.title("Removed every process, namespace and file of %s", d.box.Name)
	}
	return err
}

// keep leaves the box running, its servers in a process of their own.
func (d *demo) keep(ctx context.Context) error {
	_ = d.servers.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	hosts := d.box.Hosts()
	if _, err := d.box.Start(nil, exec.Command(self, append([]string{serveVerb}, hostArgs(hosts)...)...)); err != nil {
		return err
	}
	from, to := d.box.Nodes[0].Pods[0], d.box.Nodes[1].Pods[0]
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	if _, err := netns.Ask(ctx, from.Namespace, "tcp", to.Addresses[0]); err != nil {
		return fmt.Errorf("the kept servers do not answer: %w", err)
	}
	if err := d.box.Keep(); err != nil {
		return err
	}
	d.title("%s is left running. Look around:", d.box.Name)
	d.rows("COMMAND\tSHOWS",
		fmt.Sprintf("ip netns list | grep %s-\tthe namespaces", d.box.Name),
		fmt.Sprintf("ip -n %s route\tthe VPC's route table (-6 for IPv6)", d.box.Router.Name),
		fmt.Sprintf("ip -n %s link show %s\twhose address that is", from.Node.Namespace.Name, from.Addresses[0]),
		fmt.Sprintf("ip netns exec %s bash -c 'head -1 </dev/tcp/%s/%d'\tas whom %s sees %s", from.Namespace.Name, to.Addresses[0], netns.Port, to.Name, from.Name),
		fmt.Sprintf("cat %s\tthe Nodes; change them and the routes follow", d.box.NodesFile()),
		fmt.Sprintf("cat %s\twhat the controller did", d.controller.LogFile),
		d.callsHint(),
		invocation()+" down\tremoves all of this")
	return nil
}

// invocation is how this program is called: what "go run" builds is gone afterwards.
func invocation() string {
	if strings.Contains(os.Args[0], "go-build") {
		return "go run ./test/netns/demo"
	}
	return os.Args[0]
}
