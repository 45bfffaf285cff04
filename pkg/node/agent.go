package node

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vpcroute/vpcroute/pkg/bridge"
	"github.com/vpcroute/vpcroute/pkg/ipam"
)

// A Node is what the agent needs of its Node object.
type Node struct {
	// Name and UID are those of the object; empty while it could not be read.
	Name, UID string
	// PodCIDRs are spec.podCIDRs.
	PodCIDRs []netip.Prefix
	// Addresses are its internal addresses, in order.
	Addresses []netip.Addr
	// MaxPods is status.capacity.pods, and 0 when it is unknown.
	MaxPods int
}

// An Agent brings its node to the state that the plugin needs, in the calling
// thread's network namespace.
type Agent struct {
	Installation Installation
	Kernel       Kernel
	// Firewall is the packet filter for masquerading; nil for none.
	Firewall Firewall
	// Bridge is the pods' bridge, for example "cbr0".
	Bridge string
	// MTU in bytes for bridge and pods; 0 for that of the uplink.
	MTU int
	// CNIVersion is one of CNIVersions.
	CNIVersion string
	// Keep and Exceptions are those of Masquerade; the node's own podCIDRs and
	// the destinations of SpecialUse are in Keep already.
	Keep, Exceptions []netip.Prefix
}

// A Firewall keeps the masquerade rules in one back end.
type Firewall interface {
	// Ensure brings the rules to what m says and reports whether it had to.
	Ensure(m Masquerade) (changed bool, err error)
	// Remove takes them away; it is not an error if they are gone.
	Remove() error
}

// A Report is what one pass of the agent found and did.
type Report struct {
	// Ready is true when pods can be attached: everything is in place.
	Ready bool
	// Waiting says what the agent waits for, and "" when it waits for nothing.
	Waiting string
	// Changed says what was brought into place, in words.
	Changed []string
	// RulesWritten is true when the masquerade rules were not as they should be.
	RulesWritten bool
	// Warnings are things that somebody else has to see to.
	Warnings []string
	// Drifts are kernel settings as they were found, before the repair of ours.
	Drifts []Drift
	// Rival is the configuration that the runtime takes before ours, or "".
	Rival string
	// Link is the uplink, its MTU that of the pods.
	Link Link
}

// Reconcile makes one pass: programs, kernel settings and bridge, packet
// filter, and the conflist last, since the node counts as ready from then on.
// It stops at the first step that fails; what was in place stays in place. The
// Report holds what was found and done up to there.
func (a *Agent) Reconcile(n Node) (r Report, err error) {
	if len(n.PodCIDRs) == 0 {
		if n.PodCIDRs, err = a.Installation.PodCIDRs(); err != nil {
			r.Warnings = append(r.Warnings, err.Error())
		}
	}
	if len(n.PodCIDRs) == 0 {
		r.Waiting = fmt.Sprintf("node %q has no podCIDR yet: whoever allocates them (kube-controller-manager or route-controller, with --allocate-node-cidrs) has not done so", n.Name)
		return r, nil
	}
	pool, err := ipam.New(n.PodCIDRs, nil)
	if err != nil {
		return r, fmt.Errorf("podCIDRs %v: %w", n.PodCIDRs, err)
	}
	for _, step := range []func(Node, *ipam.Pool, *Report) error{a.programs, a.kernel, a.bridge, a.firewall, a.conflist} {
		if err := step(n, pool, &r); err != nil {
			return r, err
		}
	}
	r.Ready = true
	return r, nil
}

func (r *Report) changed(what string) { r.Changed = append(r.Changed, what) }

func (a *Agent) programs(_ Node, _ *ipam.Pool, r *Report) error {
	changed, err := a.Installation.WriteBinaries()
	for _, name := range changed {
		r.changed("installed " + name)
	}
	return err
}

func (a *Agent) kernel(n Node, pool *ipam.Pool, r *Report) (err error) {
	// Before the API server was reached once, the node's addresses are unknown
	// and so is the uplink; the bridge then takes that of the default route.
	if len(n.Addresses) > 0 {
		if r.Link, err = Uplink(n.Addresses); err != nil {
			return err
		}
	}
	pods := min(pool.Capacity(), bridge.MaxPorts)
	if n.MaxPods > 0 {
		pods = min(pods, n.MaxPods)
	}
	if n.MaxPods > pool.Capacity() {
		r.Warnings = append(r.Warnings, fmt.Sprintf("max-pods is %d but %v has addresses for %d pods only: lower max-pods or give the node a larger podCIDR", n.MaxPods, n.PodCIDRs, pool.Capacity()))
	}
	r.Drifts = a.Kernel.Check(Needs{
		IPv4: len(ofFamily(n.PodCIDRs, true)) > 0, IPv6: len(ofFamily(n.PodCIDRs, false)) > 0,
		// Each pod may be an entry of the host and have its gateway as an entry.
		Uplink: r.Link.Name, Neighbours: 2 * pods,
	})
	return a.Kernel.Repair(r.Drifts)
}

func (a *Agent) bridge(_ Node, pool *ipam.Pool, r *Report) error {
	br, err := bridge.Open(a.Bridge)
	if err != nil {
		return err
	}
	defer br.Close()
	mtu := a.MTU
	if mtu == 0 {
		mtu = r.Link.MTU
	}
	if r.Link.MTU, err = br.Ensure(bridge.Settings{Gateways: pool.Gateways(), MTU: mtu}); err != nil {
		return err
	}
	// For ports made under an older configuration: without it a
	// pod cannot reach itself through a service.
	if err := br.SetHairpin(true); err != nil {
		return err
	}
	retired, err := br.Retire(pool.Gateways())
	for _, g := range retired {
		r.changed(fmt.Sprintf("took gateway %s of a former podCIDR from %s", g, a.Bridge))
	}
	return err
}

func (a *Agent) firewall(n Node, _ *ipam.Pool, r *Report) error {
	if a.Firewall == nil {
		return nil
	}
	changed, err := a.Firewall.Ensure(a.Masquerade(n.PodCIDRs))
	if r.RulesWritten = changed; changed {
		r.changed("wrote the masquerade rules")
	}
	return err
}

// Masquerade returns the rules for a node of these podCIDRs.
func (a *Agent) Masquerade(podCIDRs []netip.Prefix) Masquerade {
	keep := slices.Concat(a.Keep, podCIDRs, SpecialUse())
	keep = slices.DeleteFunc(keep, func(p netip.Prefix) bool { return slices.Contains(a.Exceptions, p) })
	slices.SortFunc(keep, byLength)
	return Masquerade{PodCIDRs: podCIDRs, Bridge: a.Bridge, Keep: slices.Compact(keep), Exceptions: a.Exceptions}
}

func (a *Agent) conflist(n Node, _ *ipam.Pool, r *Report) error {
	content, err := Network{CNIVersion: a.CNIVersion, PodCIDRs: n.PodCIDRs, Bridge: a.Bridge, MTU: r.Link.MTU}.Conflist()
	if err != nil {
		return err
	}
	changed, err := a.Installation.WriteConflist(content)
	if err != nil {
		return err
	}
	if changed {
		r.changed("wrote the conflist")
	}
	if r.Rival, err = a.Installation.Rival(); err != nil {
		return err
	}
	if r.Rival != "" {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the runtime takes %s before ours, so pods do not get their network from vpcroute: remove it, or let ours sort first with --first", r.Rival))
	}
	return nil
}

// Uninstall takes everything of ours from the node: the conflist first, so that
// no further pod comes, then, when no pod is attached any more, the rest. The
// pods that are there keep their traffic; left says what stayed for them, and
// "" that nothing did. A second run goes on where the first stopped.
func (a *Agent) Uninstall() (left string, err error) {
	if err := a.Installation.RemoveConflist(); err != nil {
		return "", err
	}
	br, err := bridge.Open(a.Bridge)
	if err != nil {
		return "", err
	}
	defer br.Close()
	ports, err := br.Remove()
	if err != nil {
		return "", err
	}
	if ports > 0 {
		return fmt.Sprintf("%d pods are still attached to %s: the programs, the bridge and the packet filter's rules stay until they are gone; drain the node and run this again", ports, a.Bridge), nil
	}
	var errs []error
	if a.Firewall != nil {
		errs = append(errs, a.Firewall.Remove())
	}
	return "", errors.Join(append(errs, a.Installation.RemoveBinaries())...)
}

// String says a report in one line.
func (r Report) String() string {
	switch {
	case r.Waiting != "":
		return "waiting: " + r.Waiting
	case len(r.Changed) > 0:
		return strings.Join(r.Changed, ", ")
	case r.Ready:
		return "nothing to do"
	}
	return "not ready"
}
