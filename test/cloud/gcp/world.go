package gcp

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/vpcroute/vpcroute/test/cloud"
)

// A network is one VPC network.
type network struct {
	project, name string
	auto          bool
	subnets       []netip.Prefix
}

func (n network) path() string { return "projects/" + n.project + "/global/networks/" + n.name }

// A Machine is one instance.
type Machine struct {
	Project, Zone, Name string
	// Network is the path of the network that it is in.
	Network string
	// Addresses are its internal ones.
	Addresses []netip.Addr
	// CanIPForward lets it forward packets; the cloud drops them otherwise.
	CanIPForward bool
	Stopped      bool
}

// Path is how a route names the machine.
func (m Machine) Path() string {
	return fmt.Sprintf("projects/%s/zones/%s/instances/%s", m.Project, m.Zone, m.Name)
}

// address is the machine's first internal address of a family, or the zero Addr.
func (m Machine) address(v4 bool) netip.Addr {
	i := slices.IndexFunc(m.Addresses, func(a netip.Addr) bool { return a.Is4() == v4 })
	if i < 0 {
		return netip.Addr{}
	}
	return m.Addresses[i]
}

// A Warning is what the API notices about a route.
type Warning struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// A Route is a route as the API spells it.
type Route struct {
	Kind              string    `json:"kind,omitempty"`
	ID                string    `json:"id,omitempty"`
	CreationTimestamp string    `json:"creationTimestamp,omitempty"`
	Name              string    `json:"name"`
	Description       string    `json:"description,omitempty"`
	Network           string    `json:"network,omitempty"`
	Tags              []string  `json:"tags,omitempty"`
	DestRange         string    `json:"destRange,omitempty"`
	Priority          *int64    `json:"priority,omitempty"`
	NextHopInstance   string    `json:"nextHopInstance,omitempty"`
	NextHopIP         string    `json:"nextHopIp,omitempty"`
	NextHopNetwork    string    `json:"nextHopNetwork,omitempty"`
	NextHopGateway    string    `json:"nextHopGateway,omitempty"`
	NextHopPeering    string    `json:"nextHopPeering,omitempty"`
	NextHopVPNTunnel  string    `json:"nextHopVpnTunnel,omitempty"`
	NextHopIlb        string    `json:"nextHopIlb,omitempty"`
	RouteType         string    `json:"routeType,omitempty"`
	SelfLink          string    `json:"selfLink,omitempty"`
	Warnings          []Warning `json:"warnings,omitempty"`
}

// static is true for a route that counts against the quota.
func (r Route) static() bool { return r.NextHopNetwork == "" && r.NextHopPeering == "" }

func (r Route) hop() string {
	return tail(r.NextHopInstance + r.NextHopIP + r.NextHopNetwork + r.NextHopGateway + r.NextHopPeering + r.NextHopVPNTunnel + r.NextHopIlb)
}

// fullURL is how answers name a resource: with a host that need not be the one
// that was called.
func fullURL(path string) string {
	if path == "" || strings.HasPrefix(path, "https://") {
		return path
	}
	return "https://www.googleapis.com/compute/v1/" + path
}

func tail(url string) string {
	if i := strings.Index(url, "/projects/"); i >= 0 {
		return url[i+1:]
	}
	return url
}

// commit makes the next routes the present ones: lists see them after SeeAfter,
// packets after the frame's EffectDelay.
func (e *Emulator) commit(next map[string]Route) {
	e.routes = next
	if e.options.SeeAfter > 0 {
		e.history.Put(e.Clock.Now(), maps.Clone(next), 2*e.options.SeeAfter)
	}
	e.Effect(e.effect())
}

// seen are the routes that lists show.
func (e *Emulator) seen() map[string]Route {
	if e.options.SeeAfter > 0 {
		return e.history.At(e.Clock.Now().Add(-e.options.SeeAfter))
	}
	return e.routes
}

// change runs f on a copy of the routes and commits it.
func (e *Emulator) change(f func(next map[string]Route)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	next := maps.Clone(e.routes)
	f(next)
	e.commit(next)
}

// effect is what packets feel, the winning one of several routes first.
func (e *Emulator) effect() []cloud.Route {
	var routes []cloud.Route
	names := sorted(e.routes)
	slices.SortStableFunc(names, func(a, b string) int { return int(priority(e.routes[a]) - priority(e.routes[b])) })
	for _, name := range names {
		r := e.routes[name]
		destination, err := netip.ParsePrefix(r.DestRange)
		if err != nil || r.NextHopInstance == "" && r.NextHopIP == "" || len(r.Tags) > 0 {
			continue
		}
		var via netip.Addr
		if m, ok := e.machineOf(r); ok && !m.Stopped && m.CanIPForward {
			via = m.address(destination.Addr().Is4())
		}
		routes = append(routes, cloud.Route{Table: tail(r.Network), Destination: destination, Via: via})
	}
	return routes
}

func priority(r Route) int64 {
	if r.Priority == nil {
		return 1000
	}
	return *r.Priority
}

// machineOf finds the machine that a route leads to in the route's network.
func (e *Emulator) machineOf(r Route) (Machine, bool) {
	if r.NextHopInstance != "" {
		m, ok := e.machines[tail(r.NextHopInstance)]
		return m, ok && m.Network == tail(r.Network)
	}
	for _, m := range e.machines {
		if a, err := netip.ParseAddr(r.NextHopIP); err == nil && m.Network == tail(r.Network) && slices.Contains(m.Addresses, a) {
			return m, true
		}
	}
	return Machine{}, false
}

// warnings are what the API notices about a route at this moment.
func (e *Emulator) warnings(r Route) (found []Warning) {
	warn := func(code string) {
		found = append(found, Warning{code, fmt.Sprintf("Route %s: %s", r.Name, strings.ToLower(strings.ReplaceAll(code, "_", " ")))})
	}
	m, ok := e.machineOf(r)
	destination, err := netip.ParsePrefix(r.DestRange)
	switch {
	case r.NextHopInstance == "" && r.NextHopIP == "":
	case !ok && r.NextHopIP != "":
		warn("NEXT_HOP_ADDRESS_NOT_ASSIGNED")
	case !ok && e.machines[tail(r.NextHopInstance)].Name != "":
		warn("NEXT_HOP_INSTANCE_NOT_ON_NETWORK")
	case !ok:
		warn("NEXT_HOP_INSTANCE_NOT_FOUND")
	case m.Stopped:
		warn("NEXT_HOP_NOT_RUNNING")
	default:
		if !m.CanIPForward {
			warn("NEXT_HOP_CANNOT_IP_FORWARD")
		}
		if err == nil && destination.Addr().Is6() && !m.address(false).IsValid() {
			warn("NEXT_HOP_INSTANCE_HAS_NO_IPV6_INTERFACE")
		}
	}
	return found
}

// AddNetwork makes a network in custom mode with subnets of these ranges, or
// adds subnets to it. Each subnet has a route of its own.
func (e *Emulator) AddNetwork(project, name string, subnets ...netip.Prefix) {
	e.mu.Lock()
	n := e.networks[project+"/"+name]
	n.project, n.name, n.subnets = project, name, append(n.subnets, subnets...)
	e.networks[project+"/"+name] = n
	e.mu.Unlock()
	for _, s := range subnets {
		e.AddRoute(project, Route{Name: "default-route-" + strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(s.String()), Network: n.path(), DestRange: s.String(), NextHopNetwork: n.path(), RouteType: "SUBNET"})
	}
}

// SetAutoMode puts a network in auto mode.
func (e *Emulator) SetAutoMode(project, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.networks[project+"/"+name]
	n.auto = true
	e.networks[project+"/"+name] = n
}

// RemoveNetwork takes a network away, its routes stay.
func (e *Emulator) RemoveNetwork(project, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.networks, project+"/"+name)
}

// AddMachines starts machines, or changes them.
func (e *Emulator) AddMachines(machines ...Machine) {
	e.change(func(map[string]Route) {
		for _, m := range machines {
			e.machines[m.Path()] = m
		}
	})
}

// RemoveMachines deletes machines, by their paths; routes to them stay listed.
func (e *Emulator) RemoveMachines(paths ...string) {
	e.change(func(map[string]Route) {
		for _, p := range paths {
			delete(e.machines, p)
		}
	})
}

// AddRoute adds a route, unchecked.
func (e *Emulator) AddRoute(project string, r Route) {
	e.change(func(next map[string]Route) { next[project+"/"+r.Name] = e.filled(project, r) })
}

// filled adds what the API itself sets in a new route.
func (e *Emulator) filled(project string, r Route) Route {
	r.Kind, r.ID = "compute#route", fmt.Sprint(7_000_000_000_000_000_000+e.number())
	r.CreationTimestamp = e.Clock.Now().Format("2006-01-02T15:04:05.000-07:00")
	r.Network, r.NextHopInstance, r.NextHopNetwork = fullURL(r.Network), fullURL(r.NextHopInstance), fullURL(r.NextHopNetwork)
	r.SelfLink = fullURL("projects/" + project + "/global/routes/" + r.Name)
	if r.RouteType == "" && r.static() {
		r.RouteType = "STATIC"
	}
	p := priority(r)
	r.Priority = &p
	return r
}

// RemoveRoute deletes a route as somebody in the console would.
func (e *Emulator) RemoveRoute(project, name string) {
	e.change(func(next map[string]Route) { delete(next, project+"/"+name) })
}

// Routes returns the static routes of a network, as "destination next-hop", in
// the order of their destinations and names.
func (e *Emulator) Routes(project, name string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	path := e.networks[project+"/"+name].path()
	var lines []string
	for _, key := range sorted(e.routes) {
		if r := e.routes[key]; tail(r.Network) == path && r.static() {
			lines = append(lines, r.DestRange+" "+r.hop())
		}
	}
	slices.Sort(lines)
	return lines
}

// Names returns the names of a project's routes.
func (e *Emulator) Names(project string) (names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, key := range sorted(e.routes) {
		if name, ok := strings.CutPrefix(key, project+"/"); ok {
			names = append(names, name)
		}
	}
	return names
}

// usage counts a project's static routes.
func (e *Emulator) usage(project string) (n int) {
	for key, r := range e.routes {
		if strings.HasPrefix(key, project+"/") && r.static() {
			n++
		}
	}
	return n
}
