package gcp

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

var (
	namePattern   = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	filterPattern = regexp.MustCompile(`^\(?(name|network|description)\)? (eq|=) ("(?:[^"\\]|\\.)*"|\S+?)\)?$`)
)

func (e *Emulator) getNetwork(r request) (any, *problem) {
	if p := e.need(r, "compute.networks.get"); p != nil {
		return nil, p
	}
	n, ok := e.networks[r.project+"/"+r.name]
	if !ok {
		return nil, problemf("notFound", "The resource 'projects/%s/global/networks/%s' was not found", r.project, r.name)
	}
	return map[string]any{"kind": "compute#network", "name": n.name, "selfLink": fullURL(n.path()), "autoCreateSubnetworks": n.auto}, nil
}

func (e *Emulator) getProject(r request) (any, *problem) {
	if p := e.need(r, "compute.projects.get"); p != nil {
		return nil, p
	}
	content := map[string]any{"quotas": []any{
		map[string]any{"metric": "NETWORKS", "limit": 5.0, "usage": 1.0},
		map[string]any{"metric": "ROUTES", "limit": float64(e.options.Routes), "usage": float64(e.usage(r.project))},
	}}
	if r.URL.Query().Get("fields") == "" {
		content["kind"], content["name"] = "compute#project", r.project
	}
	return content, nil
}

func (e *Emulator) getRoute(r request) (any, *problem) {
	if p := e.need(r, "compute.routes.get"); p != nil {
		return nil, p
	}
	found, ok := e.routes[r.project+"/"+r.name]
	if !ok {
		return nil, e.missing(r)
	}
	found.Warnings = e.warnings(found)
	return found, nil
}

func (e *Emulator) missing(r request) *problem {
	return problemf("notFound", "The resource 'projects/%s/global/routes/%s' was not found", r.project, r.name)
}

func (e *Emulator) listRoutes(r request) (any, *problem) {
	if p := e.need(r, "compute.routes.list"); p != nil {
		return nil, p
	}
	q := r.URL.Query()
	fits, p := filterOf(q.Get("filter"))
	if p != nil {
		return nil, p
	}
	size := e.options.PageSize
	if text := q.Get("maxResults"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > 500 {
			return nil, problemf("invalid", "Invalid value for field 'maxResults': '%s'", text)
		}
		if n > 0 {
			size = min(size, n)
		}
	}
	items, after, next := []Route{}, q.Get("pageToken"), ""
	seen := e.seen()
	for _, key := range sorted(seen) {
		x := seen[key]
		name, ours := strings.CutPrefix(key, r.project+"/")
		if !ours || !fits(x) || name <= after {
			continue
		}
		if len(items) == size {
			next = items[size-1].Name
			break
		}
		x.Warnings = e.warnings(x)
		items = append(items, x)
	}
	content := map[string]any{"kind": "compute#routeList", "items": items}
	if next != "" {
		content["nextPageToken"] = next
	}
	if len(items) == 0 {
		delete(content, "items")
		content["warning"] = Warning{"NO_RESULTS_ON_PAGE", "There are no results for scope 'global' on this page."}
	}
	return content, nil
}

// filterOf reads a filter of one comparison.
func filterOf(text string) (func(Route) bool, *problem) {
	if text == "" {
		return func(Route) bool { return true }, nil
	}
	m := filterPattern.FindStringSubmatch(text)
	bad := problemf("invalid", "Invalid value for field 'filter': '%s'. Invalid list filter expression.", text)
	if m == nil {
		return nil, bad
	}
	literal := m[3]
	if unquoted, err := strconv.Unquote(literal); err == nil {
		literal = unquoted
	}
	if m[2] == "=" {
		literal = regexp.QuoteMeta(literal)
	}
	expression, err := regexp.Compile("^(?:" + literal + ")$")
	if err != nil {
		return nil, bad
	}
	return func(r Route) bool {
		return expression.MatchString(map[string]string{"name": r.Name, "network": r.Network, "description": r.Description}[m[1]])
	}, nil
}

func (e *Emulator) insertRoute(q request) (any, *problem) {
	if p := e.need(q, "compute.routes.create", "compute.networks.updatePolicy"); p != nil {
		return nil, p
	}
	var r Route
	if p := decode(q.body, &r); p != nil {
		return nil, p
	}
	if r.NextHopInstance != "" {
		if p := e.need(q, "compute.instances.use"); p != nil {
			return nil, p
		}
	}
	if p := e.judge(q.project, r); p != nil {
		return nil, p
	}
	key := q.project + "/" + r.Name
	if _, there := e.routes[key]; there || e.busy[key] {
		return nil, problemf("alreadyExists", "The resource 'projects/%s/global/routes/%s' already exists", q.project, r.Name)
	}
	if p := e.checkConcurrent(); p != nil {
		return nil, p
	}
	full := problemf("quotaExceeded", "Quota 'ROUTES' exceeded. Limit: %d.0 globally.", e.options.Routes)
	if e.options.QuotaAtOnce && e.usage(q.project) >= e.options.Routes {
		return nil, full
	}
	return e.start(q, "insert", r.Name, func() (*problem, []Warning) {
		if e.usage(q.project) >= e.options.Routes {
			full.reason = "QUOTA_EXCEEDED"
			return full, nil
		}
		if p := e.missingInstance(r); p != nil {
			return p, nil
		}
		next := maps.Clone(e.routes)
		next[key] = e.filled(q.project, r)
		e.commit(next)
		return nil, e.warnings(next[key])
	}), nil
}

// judge looks for what is wrong with a new route.
func (e *Emulator) judge(project string, r Route) *problem {
	invalid := func(field, value, why string) *problem {
		return problemf("invalid", "Invalid value for field 'resource.%s': '%s'. %s", field, value, why)
	}
	destination, err := netip.ParsePrefix(r.DestRange)
	n, known := e.networks[strings.TrimPrefix(strings.Replace(tail(r.Network), "/global/networks/", "/", 1), "projects/")]
	hops := 0
	for _, hop := range []string{r.NextHopInstance, r.NextHopIP, r.NextHopGateway, r.NextHopVPNTunnel, r.NextHopIlb} {
		if hop != "" {
			hops++
		}
	}
	switch {
	case !namePattern.MatchString(r.Name):
		return invalid("name", r.Name, "Must be a match of regex '[a-z]([-a-z0-9]{0,61}[a-z0-9])?'")
	case len(r.Description) > 2048:
		return invalid("description", r.Description, "Must be at most 2048 characters long")
	case err != nil || destination != destination.Masked():
		return invalid("destRange", r.DestRange, "Must be a CIDR address range.")
	case !known || n.project != project:
		return problemf("notFound", "The resource '%s' was not found", tail(r.Network))
	case hops != 1:
		return problemf("invalidResourceUsage", "Invalid resource usage: 'A Route must specify exactly one type of next hop.'.")
	case priority(r) < 0 || priority(r) > 65535:
		return invalid("priority", fmt.Sprint(*r.Priority), "Must be from 0 to 65535.")
	}
	for _, s := range n.subnets {
		if s.Bits() <= destination.Bits() && s.Overlaps(destination) {
			return invalid("destRange", r.DestRange, r.DestRange+" hides the address space of the network ("+s.String()+"). Cannot change the routing of packets destined for the network.")
		}
	}
	return e.judgeHop(project, r, destination)
}

func (e *Emulator) judgeHop(project string, r Route, destination netip.Prefix) *problem {
	if r.NextHopIP != "" {
		if a, err := netip.ParseAddr(r.NextHopIP); err != nil || a.Is4() != destination.Addr().Is4() {
			return problemf("invalid", "Invalid value for field 'resource.nextHopIp': '%s'. Must be an address of the destination's family.", r.NextHopIP)
		}
	}
	if r.NextHopInstance == "" {
		return nil
	}
	path := tail(r.NextHopInstance)
	if !strings.HasPrefix(path, "projects/"+project+"/zones/") {
		return problemf("invalid", "Invalid value for field 'resource.nextHopInstance': '%s'. Cross project referencing is not allowed for this resource.", path)
	}
	if e.options.MissingInOperation {
		return nil
	}
	if p := e.missingInstance(r); p != nil {
		p.reason = "notFound"
		return p
	}
	return nil
}

func (e *Emulator) missingInstance(r Route) *problem {
	path := tail(r.NextHopInstance)
	if _, there := e.machines[path]; path == "" || there {
		return nil
	}
	return problemf("RESOURCE_NOT_FOUND", "The resource '%s' was not found", path)
}

func (e *Emulator) deleteRoute(r request) (any, *problem) {
	if p := e.need(r, "compute.routes.delete", "compute.networks.updatePolicy"); p != nil {
		return nil, p
	}
	key := r.project + "/" + r.name
	found, there := e.routes[key]
	switch {
	case e.busy[key]:
		return nil, problemf("resourceNotReady", "The resource 'projects/%s/global/routes/%s' is not ready", r.project, r.name)
	case !there:
		return nil, e.missing(r)
	case !found.static():
		return nil, problemf("invalid", "The route '%s' cannot be deleted.", r.name)
	}
	if p := e.checkConcurrent(); p != nil {
		return nil, p
	}
	return e.start(r, "delete", r.name, func() (*problem, []Warning) {
		next := maps.Clone(e.routes)
		delete(next, key)
		e.commit(next)
		return nil, nil
	}), nil
}
