package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Needs is what a node has to be fit for.
type Needs struct {
	// IPv4 and IPv6 are the families of the node's podCIDRs.
	IPv4, IPv6 bool
	// Uplink is the link that carries the node's address, for example "eth0".
	Uplink string
	// Neighbours is how many neighbour entries of one family the host may come
	// to hold: its own pods (each namespace holds its gateway, the host holds
	// each pod) and the peers they talk to on the link.
	Neighbours int
}

// A Drift is one kernel setting that is not as the node needs it.
type Drift struct {
	// Setting is the sysctl's name, for example "net.ipv4.ip_forward".
	Setting string `json:"setting"`
	// Found is its value, "" when it is absent.
	Found string `json:"found"`
	// Want is the value that would do.
	Want string `json:"want"`
	// Ours is true when the agent sets it by itself, and false when it belongs to
	// whoever runs the host.
	Ours bool `json:"ours"`
	// Reason says what breaks while it is as found.
	Reason string `json:"reason"`
}

// String says the drift and the fix in one line.
func (d Drift) String() string {
	if d.Found == "" {
		return fmt.Sprintf("%s is absent: %s", d.Setting, d.Reason)
	}
	return fmt.Sprintf("%s is %s: %s; set it to %s", d.Setting, d.Found, d.Reason, d.Want)
}

// Kernel reads and repairs the kernel settings of a node.
type Kernel struct {
	// Root is the folder of the settings, "/proc/sys".
	Root string
}

// Check returns the settings that are not as needed, those that are ours to set
// first. A setting that cannot be read counts as absent.
func (k Kernel) Check(n Needs) []Drift {
	return append(k.forwarding(n), append(k.bridgeNetfilter(n), append(k.reversePath(n), k.neighbours(n)...)...)...)
}

// Repair sets those of the drifts that are ours and returns the joined errors.
func (k Kernel) Repair(drifts []Drift) error {
	var errs []error
	for _, d := range drifts {
		if !d.Ours {
			continue
		}
		if err := os.WriteFile(k.path(d.Setting), []byte(d.Want), 0o644); err != nil {
			errs = append(errs, fmt.Errorf("set %s to %s: %w", d.Setting, d.Want, err))
		}
	}
	return errors.Join(errs...)
}

// path turns a setting's name into its file. As in sysctl(8), a slash in the name
// stands for a dot in the file's, which the name of a VLAN link has.
func (k Kernel) path(setting string) string {
	return filepath.Join(k.Root, strings.NewReplacer(".", "/", "/", ".").Replace(setting))
}

// ofLink returns the name of a link's setting.
func ofLink(family, link, setting string) string {
	return "net." + family + ".conf." + strings.ReplaceAll(link, ".", "/") + "." + setting
}

// read returns a setting's value, or "" when it cannot be read.
func (k Kernel) read(setting string) string {
	b, err := os.ReadFile(k.path(setting))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// forwarding checks that the node passes packets on. Turning it on for IPv6
// makes the kernel ignore router advertisements on links whose accept_ra is 1
// (Documentation/networking/ip-sysctl.rst), and with them may go the node's own
// default route; that is the host's to decide, so it is told first.
func (k Kernel) forwarding(n Needs) []Drift {
	var drifts []Drift
	const reason = "packets between pods and other machines are dropped"
	if v := k.read("net.ipv4.ip_forward"); n.IPv4 && v != "1" {
		drifts = append(drifts, Drift{"net.ipv4.ip_forward", v, "1", true, reason})
	}
	if !n.IPv6 {
		return drifts
	}
	if v := k.read("net.ipv6.conf.all.forwarding"); v != "1" {
		drifts = append(drifts, Drift{"net.ipv6.conf.all.forwarding", v, "1", v != "", reason})
	}
	acceptRA := ofLink("ipv6", n.Uplink, "accept_ra")
	if v := k.read(acceptRA); v == "1" && n.Uplink != "" {
		drifts = append(drifts, Drift{
			acceptRA, v, "2", false,
			"a forwarding node ignores router advertisements, so a default route learnt from them expires",
		})
	}
	return drifts
}

// bridgeNetfilter checks that the kernel can show bridged packets to the packet
// filter. The global switch is left as it is: cbr0 has one of its own.
func (k Kernel) bridgeNetfilter(n Needs) []Drift {
	const setting = "net.bridge.bridge-nf-call-iptables" // the module brings all of them or none
	if !n.IPv4 && !n.IPv6 || k.exists(setting) {
		return nil
	}
	return []Drift{{Setting: setting, Reason: "the kernel module br_netfilter is not loaded, so replies from a pod behind a service on the same node skip its address translation; run: modprobe br_netfilter"}}
}

func (k Kernel) exists(setting string) bool {
	_, err := os.Stat(k.path(setting))
	return !errors.Is(err, fs.ErrNotExist)
}

// reversePath reports strict filtering on the uplink: a node with a second
// uplink then drops what comes in by the one its routes do not point to. The
// kernel uses the larger of the setting for all links and the link's own.
func (k Kernel) reversePath(n Needs) []Drift {
	if !n.IPv4 || n.Uplink == "" {
		return nil
	}
	uplink := ofLink("ipv4", n.Uplink, "rp_filter")
	for _, setting := range []string{"net.ipv4.conf.all.rp_filter", uplink} {
		if k.read(setting) == "1" && k.read(uplink) != "2" {
			return []Drift{{setting, "1", "2", false, "strict reverse-path filtering drops packets that reach the node by another link than the answer leaves by"}}
		}
	}
	return nil
}

// neighbours compares the table's hard limit, shared by all network namespaces
// of the host, with what the node may come to hold. Above 80 % is reported.
func (k Kernel) neighbours(n Needs) []Drift {
	var drifts []Drift
	for _, family := range []struct {
		name   string
		needed bool
	}{{"ipv4", n.IPv4}, {"ipv6", n.IPv6}} {
		setting := "net." + family.name + ".neigh.default.gc_thresh3"
		v := k.read(setting)
		limit, err := strconv.Atoi(v)
		if !family.needed || err != nil || n.Neighbours*5 <= limit*4 {
			continue
		}
		drifts = append(drifts, Drift{
			setting, v, strconv.Itoa(roundUp(n.Neighbours * 2)), false,
			fmt.Sprintf("the neighbour table may need %d entries, and overflows drop packets", n.Neighbours),
		})
	}
	return drifts
}

// roundUp returns the next power of two, at least the kernel's default of 1024.
func roundUp(n int) int {
	p := 1024
	for p < n {
		p *= 2
	}
	return p
}
