package node

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/vpcroute/vpcroute/pkg/netconf"
)

// CNIVersions are the versions of the CNI spec that a conflist may be written
// for, the default first. Every runtime in use takes 1.0.0. 1.1.0 adds GC and
// STATUS, but containerd 1.6 refuses results of it, and a runtime that has no
// converter cannot remove the pods it attached under the other version: so a
// node changes from one to the other only when it is empty.
var CNIVersions = []string{"1.0.0", "1.1.0"}

// A Network is what the conflist says.
type Network struct {
	// CNIVersion is one of CNIVersions.
	CNIVersion string
	// PodCIDRs are the node's ranges.
	PodCIDRs []netip.Prefix
	// Bridge is the pods' bridge.
	Bridge string
	// MTU of bridge, host veths and pods in bytes.
	MTU int
	// StateDir and LogFile are the plugin's; empty for its defaults.
	StateDir, LogFile string
}

// NetworkName is the name of the network in the conflist.
const NetworkName = "vpcroute"

// Conflist returns the conflist of a network: our plugin first, which makes the
// interface, then portmap for host ports and bandwidth for limits, each asked
// only for pods that use it.
func (n Network) Conflist() ([]byte, error) {
	entry := netconf.Entry{
		Type: netconf.Type, Bridge: n.Bridge, MTU: n.MTU, StateDir: n.StateDir, LogFile: n.LogFile,
		Capabilities: map[string]bool{"ips": true, "mac": true, "dns": true},
	}
	for _, p := range n.PodCIDRs {
		entry.PodCIDRs = append(entry.PodCIDRs, p.String())
	}
	type chained struct {
		Type         string          `json:"type"`
		Capabilities map[string]bool `json:"capabilities"`
		SNAT         bool            `json:"snat,omitempty"`
	}
	b, err := json.MarshalIndent(struct {
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
		Plugins    []any  `json:"plugins"`
	}{n.CNIVersion, NetworkName, []any{
		entry,
		chained{"portmap", map[string]bool{"portMappings": true}, true},
		chained{"bandwidth", map[string]bool{"bandwidth": true}, false},
	}}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the conflist: %w", err)
	}
	return append(b, '\n'), nil
}

// podCIDRsOf reads the ranges back from a conflist that Conflist wrote.
func podCIDRsOf(conflist []byte) ([]netip.Prefix, error) {
	var list struct {
		Plugins []struct {
			Type     string         `json:"type"`
			PodCIDRs []netip.Prefix `json:"podCIDRs"`
		} `json:"plugins"`
	}
	if err := json.Unmarshal(conflist, &list); err != nil {
		return nil, err
	}
	for _, p := range list.Plugins {
		if p.Type == netconf.Type {
			return p.PodCIDRs, nil
		}
	}
	return nil, fmt.Errorf("no plugin %q in the conflist", netconf.Type)
}
