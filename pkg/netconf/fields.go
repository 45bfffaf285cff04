package netconf

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of what is accepted.
const (
	minBits4, maxBits4 = 16, 30  // IPv4 podCIDR: room for a gateway and a pod
	minBits6, maxBits6 = 64, 120 // IPv6 podCIDR
	minMTU, minMTU6    = 576, 1280
	maxMTU             = 65535
	maxBridgeName      = 15 // IFNAMSIZ less its final zero byte
)

// own are the fields of this plugin, with a value that shows their form. Every
// one is described in docs/cni.md.
var own = map[string]string{
	"podCIDRs":    `["10.244.1.0/24", "fd00:10:244:1::/64"]`,
	"bridge":      `"cbr0"`,
	"mtu":         `1450`,
	"hairpinMode": `true`,
	"coolDown":    `"120s"`,
	"exclude":     `["10.244.1.5", "10.244.1.128/28"]`,
	"routes":      `[{"dst": "192.0.2.0/24", "gw": "10.244.1.1"}]`,
	"stateDir":    `"/run/vpcroute"`,
	"logFile":     `"/var/log/vpcroute/cni.log"`,
	"logLevel":    `"info"`,
}

// shared are the fields that the CNI spec gives to every plugin or that a
// runtime adds; names that start with "cni.dev/" belong to them too. Those that
// no plugin of this kind needs are let through unread.
var shared = map[string]string{
	"cniVersion":             `"1.1.0"`,
	"name":                   `"pods"`,
	"type":                   `"vpcroute"`,
	"capabilities":           `{"ips": true, "mac": true, "dns": true}`,
	"runtimeConfig":          `{"ips": ["10.244.1.7"]}`,
	"args":                   `{}`,
	"dns":                    `{"nameservers": ["10.96.0.10"]}`,
	"ipam":                   `{}`,
	"ipMasq":                 `false`,
	"prevResult":             `{}`,
	"disableCheck":           `false`,
	"disableGC":              `false`,
	"loadOnlyInlinedPlugins": `false`,
}

// A decoder reads one configuration and collects what is wrong with it.
type decoder struct {
	raw      map[string]json.RawMessage
	problems []error
}

func (d *decoder) decode(c *Config) {
	d.decodeShared(c)
	d.podCIDRs(c)
	d.exclude(c)
	d.bridge(c)
	d.mtu(c)
	d.value("hairpinMode", &c.HairpinMode)
	d.coolDown(c)
	d.routes(c)
	d.path("stateDir", &c.StateDir)
	d.logFile(c)
	d.logLevel(c)
	d.runtimeConfig(c)
}

func (d *decoder) decodeShared(c *Config) {
	d.value("cniVersion", &c.CNIVersion)
	d.value("name", &c.Name)
	d.value("dns", &c.DNS)
	d.value("disableGC", &c.DisableGC)
	if v := d.raw["prevResult"]; !isNull(v) {
		c.PrevResult = v
	}
	d.unsupported()
	for _, name := range []string{"cni.dev/valid-attachments", "cni.dev/attachments"} {
		if v, ok := d.raw[name]; ok {
			c.HasValid = d.valueOf(name, v, `[{"containerID": "4f5d0a", "ifname": "eth0"}]`, &c.Valid)
			break
		}
	}
}

// unsupported refuses what another plugin would obey and this one cannot.
func (d *decoder) unsupported() {
	var ipam struct {
		Type string `json:"type"`
	}
	if d.value("ipam", &ipam); ipam.Type != "" {
		d.add(&FieldError{"ipam", string(d.raw["ipam"]), "vpcroute gives out the addresses of podCIDRs itself: leave it out", ""})
	}
	var masq bool
	if d.value("ipMasq", &masq); masq {
		d.add(&FieldError{"ipMasq", "true", "vpcroute never translates addresses; the node agent masquerades what leaves the VPC: leave it out", ""})
	}
}

func (d *decoder) add(problem error) { d.problems = append(d.problems, problem) }

// value reads a top-level field into target and reports whether it was there
// and of the right JSON type.
func (d *decoder) value(field string, target any) bool {
	example := own[field]
	if example == "" {
		example = shared[field]
	}
	return d.valueOf(field, d.raw[field], example, target)
}

func (d *decoder) valueOf(field string, v json.RawMessage, example string, target any) bool {
	if isNull(v) {
		return v != nil
	}
	if err := json.Unmarshal(v, target); err != nil {
		d.add(&FieldError{field, string(v), "has the wrong form", example})
		return false
	}
	return true
}

func (d *decoder) podCIDRs(c *Config) {
	const example = `"10.244.1.0/24"`
	var texts []string
	if d.value("podCIDRs", &texts); len(texts) == 0 {
		if isNull(d.raw["podCIDRs"]) || string(d.raw["podCIDRs"]) == "[]" {
			d.add(&FieldError{"podCIDRs", "", "is missing: the node's ranges are needed", own["podCIDRs"]})
		}
		return
	}
	for i, text := range texts {
		field := fmt.Sprintf("podCIDRs[%d]", i)
		p, problem := parseRange(text)
		if problem == "" {
			problem = unusable(p)
		}
		if problem == "" {
			problem = overlap(p, c.PodCIDRs)
		}
		if problem != "" {
			d.add(&FieldError{field, strconv.Quote(text), problem, example})
			continue
		}
		c.PodCIDRs = append(c.PodCIDRs, p)
	}
}

// parseRange reads a range and says what is wrong with it, or "".
func parseRange(text string) (netip.Prefix, string) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, "is not a range in the form ADDRESS/BITS"
	case p.Addr().Is4In6():
		return p, "is an IPv4-mapped IPv6 range: write it as IPv4"
	case p != p.Masked():
		return p, "has host bits set: the range is " + p.Masked().String()
	}
	return p, ""
}

// unusable says why a range cannot be a podCIDR, or "".
func unusable(p netip.Prefix) string {
	a := p.Addr()
	lo, hi, family := minBits4, maxBits4, "IPv4"
	if a.Is6() {
		lo, hi, family = minBits6, maxBits6, "IPv6"
	}
	switch {
	case a.IsMulticast(), a.IsLoopback(), a.IsLinkLocalUnicast(), a.IsUnspecified():
		return "is not a range of unicast addresses that can be routed"
	case p.Bits() < lo || p.Bits() > hi:
		return fmt.Sprintf("is not from /%d to /%d as an %s podCIDR must be", lo, hi, family)
	}
	return ""
}

func overlap(p netip.Prefix, others []netip.Prefix) string {
	for _, o := range others {
		if p.Overlaps(o) {
			return "overlaps " + o.String()
		}
	}
	return ""
}

func (d *decoder) exclude(c *Config) {
	var texts []string
	d.value("exclude", &texts)
	for i, text := range texts {
		p, problem := parseExcluded(text)
		if problem != "" {
			d.add(&FieldError{fmt.Sprintf("exclude[%d]", i), strconv.Quote(text), problem, `"10.244.1.5" or "10.244.1.128/28"`})
			continue
		}
		c.Exclude = append(c.Exclude, p)
	}
}

func parseExcluded(text string) (netip.Prefix, string) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && !a.Is4In6() {
		return netip.PrefixFrom(a, a.BitLen()), ""
	}
	p, problem := parseRange(text)
	if problem != "" && !strings.Contains(text, "/") {
		problem = "is neither an address nor a range"
	}
	return p, problem
}

func (d *decoder) bridge(c *Config) {
	var name string
	if !d.value("bridge", &name) || name == "" {
		return
	}
	if len(name) > maxBridgeName || name == "." || name == ".." || strings.ContainsFunc(name, badInName) {
		d.add(&FieldError{"bridge", strconv.Quote(name), "is not an interface name (1 to 15 characters, no space, '/' or ':')", own["bridge"]})
		return
	}
	c.Bridge = name
}

// badInName is true for what an interface name cannot hold: dev_valid_name in
// the kernel's net/core/dev.c, and the '%' with which it makes names up.
func badInName(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/:%", r) }

func (d *decoder) mtu(c *Config) {
	var mtu int
	if !d.value("mtu", &mtu) || mtu == 0 {
		return
	}
	lowest := minMTU
	if slices.ContainsFunc(c.PodCIDRs, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		lowest = minMTU6
	}
	if mtu < lowest || mtu > maxMTU {
		d.add(&FieldError{"mtu", strconv.Itoa(mtu), fmt.Sprintf("is not 0 (the uplink's) or from %d to %d bytes", lowest, maxMTU), own["mtu"]})
		return
	}
	c.MTU = mtu
}

func (d *decoder) coolDown(c *Config) {
	var text string
	if !d.value("coolDown", &text) || text == "" {
		return
	}
	t, err := time.ParseDuration(text)
	if err != nil || t < 0 {
		d.add(&FieldError{"coolDown", strconv.Quote(text), "is not a length of time of 0 or more with its unit", own["coolDown"]})
		return
	}
	c.CoolDown = t
}

func (d *decoder) routes(c *Config) {
	var list []map[string]json.RawMessage
	d.value("routes", &list)
	for i, raw := range list {
		field := fmt.Sprintf("routes[%d]", i)
		if r, problem := parseRoute(raw, c.PodCIDRs); problem != "" {
			text, _ := json.Marshal(raw)
			d.add(&FieldError{field, string(text), problem, `{"dst": "192.0.2.0/24", "gw": "10.244.1.1"}`})
		} else {
			c.Routes = append(c.Routes, r)
		}
	}
}

// parseRoute reads one extra route and says what is wrong with it, or "".
func parseRoute(raw map[string]json.RawMessage, podCIDRs []netip.Prefix) (r Route, problem string) {
	texts := map[string]string{}
	for name, v := range raw {
		var s string
		if name != "dst" && name != "gw" {
			return r, "has the unknown field " + strconv.Quote(name)
		}
		if json.Unmarshal(v, &s) != nil {
			return r, name + " is not a string"
		}
		texts[name] = s
	}
	if r.Dst, problem = parseRange(texts["dst"]); problem != "" {
		return r, "dst " + problem
	}
	if texts["gw"] != "" {
		var err error
		if r.GW, err = netip.ParseAddr(texts["gw"]); err != nil || r.GW.Is4() != r.Dst.Addr().Is4() {
			return r, "gw is not an address of the family of dst"
		}
	}
	inPod := func(p netip.Prefix) bool {
		return p.Addr().Is4() == r.Dst.Addr().Is4() && (!r.GW.IsValid() || p.Contains(r.GW))
	}
	if len(podCIDRs) > 0 && !slices.ContainsFunc(podCIDRs, inPod) {
		return r, "cannot be reached: no podCIDR has its family and holds its gw"
	}
	return r, ""
}

func (d *decoder) path(field string, target *string) {
	var text string
	if !d.value(field, &text) || text == "" {
		return
	}
	if !filepath.IsAbs(text) || strings.ContainsRune(text, 0) {
		d.add(&FieldError{field, strconv.Quote(text), "is not an absolute path", own[field]})
		return
	}
	*target = filepath.Clean(text)
}

// logFile differs from other paths in that an empty one switches the log off.
func (d *decoder) logFile(c *Config) {
	if string(d.raw["logFile"]) == `""` {
		c.LogFile = ""
		return
	}
	d.path("logFile", &c.LogFile)
}

func (d *decoder) logLevel(c *Config) {
	var text string
	if !d.value("logLevel", &text) || text == "" {
		return
	}
	if !slices.Contains(LogLevels, text) {
		d.add(&FieldError{"logLevel", strconv.Quote(text), "is not one of " + strings.Join(LogLevels, ", "), own["logLevel"]})
		return
	}
	c.LogLevel = text
}

// runtimeConfig reads the capabilities this plugin has. A runtime may send more
// than those, so unknown ones are not refused.
func (d *decoder) runtimeConfig(c *Config) {
	var raw map[string]json.RawMessage
	d.value("runtimeConfig", &raw)
	d.ips(c, raw["ips"])
	d.mac(c, raw["mac"])
	var dns struct {
		Servers  []string `json:"servers"`
		Searches []string `json:"searches"`
		Options  []string `json:"options"`
	}
	if v := raw["dns"]; !isNull(v) && d.valueOf("runtimeConfig.dns", v, `{"servers": ["10.96.0.10"]}`, &dns) {
		c.DNS = DNS{Nameservers: dns.Servers, Search: dns.Searches, Options: dns.Options}
	}
}

func (d *decoder) ips(c *Config, v json.RawMessage) {
	var texts []string
	d.valueOf("runtimeConfig.ips", v, `["10.244.1.7"]`, &texts)
	for i, text := range texts {
		a, problem := parseWanted(text, c)
		if problem != "" {
			d.add(&FieldError{fmt.Sprintf("runtimeConfig.ips[%d]", i), strconv.Quote(text), problem, `"10.244.1.7"`})
			continue
		}
		c.IPs = append(c.IPs, a)
	}
}

// parseWanted reads an address the runtime asks for, with or without the length
// of its range, and says why it cannot be had whoever holds it, or "".
func parseWanted(text string, c *Config) (netip.Addr, string) {
	address, _, _ := strings.Cut(text, "/")
	a, err := netip.ParseAddr(address)
	if _, errPrefix := netip.ParsePrefix(text); err != nil || strings.Contains(text, "/") && errPrefix != nil {
		return a, "is not an address"
	}
	contains := func(p netip.Prefix) bool { return p.Contains(a) }
	switch {
	case len(c.PodCIDRs) > 0 && !slices.ContainsFunc(c.PodCIDRs, contains):
		return a, "is in none of the podCIDRs"
	case slices.ContainsFunc(c.Exclude, contains):
		return a, `is listed in "exclude"`
	case slices.ContainsFunc(c.IPs, func(o netip.Addr) bool { return o.Is4() == a.Is4() }):
		return a, "is the second address of its family: a pod has one of each"
	}
	return a, ""
}

func (d *decoder) mac(c *Config, v json.RawMessage) {
	var text string
	if !d.valueOf("runtimeConfig.mac", v, `"0a:58:0a:f4:01:07"`, &text) || text == "" {
		return
	}
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 || slices.Max(mac) == 0 {
		d.add(&FieldError{"runtimeConfig.mac", strconv.Quote(text), "is not a 6-byte unicast hardware address", `"0a:58:0a:f4:01:07"`})
		return
	}
	c.MAC = mac
}

func (d *decoder) refuseUnknown() {
	for _, name := range slices.Sorted(maps.Keys(d.raw)) {
		_, isOwn := own[name]
		_, isShared := shared[name]
		if isOwn || isShared || strings.HasPrefix(name, "cni.dev/") {
			continue
		}
		d.add(&FieldError{name, string(d.raw[name]), "is not a field of vpcroute" + meant(name), ""})
	}
}

// meant points out a field that differs in the case of letters only.
func meant(name string) string {
	for known := range own {
		if strings.EqualFold(known, name) {
			return fmt.Sprintf(": did you mean %q?", known)
		}
	}
	return ""
}
