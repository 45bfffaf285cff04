// Package netconf is the network configuration of the vpcroute CNI plugin: its
// JSON form, its defaults and what makes it valid. The plugin reads it and the
// node agent writes it. It must not touch the system, import CNI's types or
// another package of this module, log, or read flags or the environment.
package netconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"time"
)

// Type is the plugin's name in a conflist, and the name of its program.
const Type = "vpcroute"

// Defaults of the fields that may be left out.
const (
	DefaultBridge   = "cbr0"
	DefaultCoolDown = 120 * time.Second
	DefaultStateDir = "/run/vpcroute"
	DefaultLogFile  = "/var/log/vpcroute/cni.log"
	DefaultLogLevel = "info"
)

// An Entry is the plugin's entry in the "plugins" list of a conflist, in the
// form in which it is written. Fields that are left out have the defaults
// above; Parse reads one, with what the runtime added, and checks it.
type Entry struct {
	Type         string          `json:"type"`
	PodCIDRs     []string        `json:"podCIDRs"`
	Bridge       string          `json:"bridge,omitempty"`
	MTU          int             `json:"mtu,omitempty"`
	HairpinMode  *bool           `json:"hairpinMode,omitempty"`
	CoolDown     string          `json:"coolDown,omitempty"`
	Exclude      []string        `json:"exclude,omitempty"`
	Routes       []EntryRoute    `json:"routes,omitempty"`
	StateDir     string          `json:"stateDir,omitempty"`
	LogFile      string          `json:"logFile,omitempty"`
	LogLevel     string          `json:"logLevel,omitempty"`
	Capabilities map[string]bool `json:"capabilities,omitempty"`
}

// An EntryRoute is one of an Entry's extra routes.
type EntryRoute struct {
	Dst string `json:"dst"`
	GW  string `json:"gw,omitempty"`
}

// A Config is one call's network configuration, valid and with its defaults.
type Config struct {
	// CNIVersion is the version of the CNI spec in which the answer is wanted.
	CNIVersion string
	// Name is the network's name.
	Name string
	// PodCIDRs are the node's ranges, IPv4 and IPv6 in any order, as many per
	// family as wanted, none overlapping another.
	PodCIDRs []netip.Prefix
	// Bridge is the name of the bridge the pods are attached to.
	Bridge string
	// MTU is that of bridge, host veth and pod in bytes, and 0 to take the
	// uplink's.
	MTU int
	// HairpinMode lets a pod reach itself through a service.
	HairpinMode bool
	// CoolDown is how long a released address rests while others are free.
	CoolDown time.Duration
	// Exclude are addresses never given to a pod; they need not lie in a podCIDR.
	Exclude []netip.Prefix
	// Routes are added in the pod beside its default routes.
	Routes []Route
	// StateDir holds the hint of which address was released when.
	StateDir string
	// LogFile takes one line per call; empty for no log.
	LogFile string
	// LogLevel is one of LogLevels.
	LogLevel string
	// DNS is passed on in the result: that of the runtime if it gave one, else
	// the configuration's own.
	DNS DNS
	// IPs are the addresses the runtime asks for, at most one per family.
	IPs []netip.Addr
	// MAC is the pod's hardware address the runtime asks for, or nil.
	MAC net.HardwareAddr
	// Valid are the attachments that GC must keep; HasValid tells an empty list
	// from none.
	Valid    []Attachment
	HasValid bool
	// DisableGC is true when GC must delete nothing.
	DisableGC bool
	// PrevResult is the result of an earlier call or plugin as it came, or nil.
	PrevResult json.RawMessage
}

// A Route is an extra route in the pod.
type Route struct {
	Dst netip.Prefix
	// GW is the next hop, and the zero Addr for the gateway of the pod's range.
	GW netip.Addr
}

// DNS is what a resolver needs to know, in CNI's terms.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// An Attachment is a pod's interface in a network, in CNI's terms.
type Attachment struct {
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
}

// LogLevels are the values of logLevel, most talkative first.
var LogLevels = []string{"debug", "info", "warn", "error"}

// Parse reads a network configuration as the runtime hands it to the plugin and
// checks all of it. The error joins one *FieldError for each thing that is
// wrong. The Config is never nil: beside an error it holds what could be read,
// with defaults for the rest, which is all that deleting needs.
func Parse(data []byte) (*Config, error) {
	c := &Config{
		Bridge:      DefaultBridge,
		HairpinMode: true,
		CoolDown:    DefaultCoolDown,
		StateDir:    DefaultStateDir,
		LogFile:     DefaultLogFile,
		LogLevel:    DefaultLogLevel,
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return c, &FieldError{Problem: "the configuration is not a JSON object: " + err.Error(), Example: `{"type": "vpcroute", "podCIDRs": ["10.244.1.0/24"]}`}
	}
	d := decoder{raw: raw}
	d.decode(c)
	d.refuseUnknown()
	return c, errors.Join(d.problems...)
}

// isNull tells whether a field is absent in effect: JSON's null means "not set"
// to every Go runtime that writes one.
func isNull(v json.RawMessage) bool { return len(v) == 0 || bytes.Equal(v, []byte("null")) }
