package azure

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/vpcroute/vpcroute/test/cloud"
)

// etag is a version as the API spells it.
func etag(version int) string { return fmt.Sprintf(`W/"%08x-0000-4000-8000-000000000000"`, version) }

func (e *Emulator) showTable(t *table) map[string]any {
	properties := maps.Clone(t.body["properties"].(map[string]any))
	properties["provisioningState"], properties["resourceGuid"] = t.state, "00000000-0000-4000-8000-000000000001"
	routes := []any{}
	all, _ := properties["routes"].([]any)
	for _, r := range all {
		shown := maps.Clone(r.(map[string]any))
		content, _ := shown["properties"].(map[string]any)
		content = maps.Clone(content)
		content["provisioningState"], content["hasBgpOverride"] = t.state, false
		shown["properties"], shown["etag"], shown["type"] = content, etag(t.version), "Microsoft.Network/routeTables/routes"
		shown["id"] = fmt.Sprintf("%s/routes/%s", t.id, shown["name"])
		routes = append(routes, shown)
	}
	properties["routes"] = routes
	var subnets []any
	for _, s := range e.subnetsOf(strings.ToLower(t.id)) {
		subnets = append(subnets, map[string]any{"id": s.id})
	}
	if subnets != nil {
		properties["subnets"] = subnets
	}
	shown := maps.Clone(t.body)
	shown["properties"], shown["id"], shown["name"], shown["etag"] = properties, t.id, t.name, etag(t.version)
	shown["type"] = "Microsoft.Network/routeTables"
	return shown
}

func (e *Emulator) listTables(q query) cloud.Answer {
	var all []any
	for _, id := range slices.Sorted(maps.Keys(e.tables)) {
		if strings.Contains(id, "/resourcegroups/"+q.group+"/") {
			all = append(all, e.showTable(e.tables[id]))
		}
	}
	return e.page(q, all)
}

func notFound(q query) cloud.Answer {
	return failure(http.StatusNotFound, "ResourceNotFound", "The Resource '%s' under resource group '%s' was not found.", q.name, q.group)
}

func (e *Emulator) getTable(q query) cloud.Answer {
	t := e.tables[q.id]
	if t == nil {
		return notFound(q)
	}
	return cloud.Answer{Body: e.showTable(t), Header: http.Header{"Etag": {etag(t.version)}}}
}

// stale is the answer to a write whose condition does not hold.
func stale(q query, version int) (cloud.Answer, bool) {
	want := q.Header.Get("If-Match")
	if want == "" || want == "*" || want == etag(version) {
		return cloud.Answer{}, false
	}
	return failure(http.StatusPreconditionFailed, "PreconditionFailed", "Precondition failed. Etag provided in if-match header %s does not match etag %s of resource %s in NRP data store.", want, etag(version), q.URL.Path), true
}

func (e *Emulator) putTable(q query) cloud.Answer {
	var body map[string]any
	if err := json.Unmarshal(q.body, &body); err != nil {
		return failure(http.StatusBadRequest, "InvalidRequestContent", "The request content was invalid: %v", err)
	}
	old, status := e.tables[q.id], http.StatusOK
	if old == nil {
		old, status = &table{id: e.ID(q.group, "Microsoft.Network/routeTables", q.name), name: q.name}, http.StatusCreated
	}
	if old.state == "Updating" {
		a := failure(http.StatusTooManyRequests, "RetryableError", "A retryable error occurred.")
		a.Body = []any{map[string]any{"code": "RetryableErrorDueToAnotherOperation", "message": "Operation is in progress on " + old.id}}
		a.Header = http.Header{"Retry-After": {"10"}}
		return a
	}
	if a, refused := stale(q, old.version); refused {
		return a
	}
	next, refusal := e.judge(old, body)
	if refusal.Code != "" {
		return refusal
	}
	next.version = e.number()
	e.tables[q.id] = next
	answer := cloud.Answer{Status: status}
	e.start(q, next, &answer)
	answer.Body = e.showTable(next)
	e.commit()
	return answer
}

// start begins the operation of a write, unless writes are done at once.
func (e *Emulator) start(q query, t *table, answer *cloud.Answer) {
	o := &operation{table: q.id, polls: e.options.Polls, end: e.Clock.Now().Add(e.options.OperationTime)}
	if len(e.failures) > 0 {
		o.fail, e.failures = &e.failures[0], e.failures[1:]
	}
	if o.polls <= 0 && e.options.OperationTime <= 0 && o.fail == nil {
		return
	}
	id := fmt.Sprintf("00000000-0000-4000-8000-%012x", e.number())
	e.operations[id] = o
	t.state = "Updating"
	answer.Header = http.Header{"Azure-Asyncoperation": {fmt.Sprintf("%s/subscriptions/%s/providers/Microsoft.Network/locations/%s/operations/%s?api-version=2025-01-01", base(q.Request), e.options.Subscription, e.options.Location, id)}}
	e.hint(answer)
}

func (e *Emulator) hint(answer *cloud.Answer) {
	if e.options.RetryAfter <= 0 {
		return
	}
	if answer.Header == nil {
		answer.Header = http.Header{}
	}
	answer.Header.Set("Retry-After", fmt.Sprint(int(e.options.RetryAfter.Seconds())))
}

func (e *Emulator) getOperation(q query) cloud.Answer {
	o := e.operations[q.id[strings.LastIndex(q.id, "/")+1:]]
	switch {
	case o == nil:
		return failure(http.StatusNotFound, "OperationNotFound", "There is no such operation.")
	case !o.done:
		a := cloud.Answer{Body: map[string]any{"status": "InProgress"}}
		e.hint(&a)
		return a
	case o.fail != nil:
		return cloud.Answer{Body: map[string]any{"status": "Failed", "error": map[string]any{"code": o.fail.Code, "message": o.fail.Message}}}
	default:
		return cloud.Answer{Body: map[string]any{"status": "Succeeded"}}
	}
}

// routesOf reads the routes of a table's JSON.
func routesOf(body map[string]any) (routes []Route) {
	p, _ := body["properties"].(map[string]any)
	all, _ := p["routes"].([]any)
	for _, x := range all {
		r, _ := x.(map[string]any)
		content, _ := r["properties"].(map[string]any)
		text := func(m map[string]any, name string) string { s, _ := m[name].(string); return s }
		routes = append(routes, Route{text(r, "name"), text(content, "addressPrefix"), text(content, "nextHopType"), text(content, "nextHopIpAddress")})
	}
	return routes
}

var routeName = regexp.MustCompile(`^\w([\w.-]{0,78}\w)?$`)

// judge checks what is written and returns it as the table's next state.
func (e *Emulator) judge(old *table, body map[string]any) (next *table, refusal cloud.Answer) {
	bad := func(code, format string, args ...any) (*table, cloud.Answer) {
		return nil, failure(http.StatusBadRequest, code, format, args...)
	}
	properties, ok := body["properties"].(map[string]any)
	if !ok {
		return bad("InvalidRequestFormat", "Cannot parse the request.")
	}
	if body["location"] != e.options.Location {
		return bad("LocationRequired", "The location property is required for this definition.")
	}
	for _, name := range []string{"id", "name", "type", "etag"} {
		delete(body, name)
	}
	for _, name := range []string{"provisioningState", "resourceGuid", "subnets"} {
		delete(properties, name)
	}
	next = &table{id: old.id, name: old.name, body: body, state: "Succeeded", routes: routesOf(body)}
	if len(next.routes) > e.options.RoutesPerTable {
		return bad(e.options.FullCode, "Route table %s cannot have more than %d routes.", old.id, e.options.RoutesPerTable)
	}
	names, ranges := map[string]bool{}, map[string]bool{}
	for _, r := range next.routes {
		p, err := netip.ParsePrefix(r.AddressPrefix)
		hop, hopErr := netip.ParseAddr(r.NextHopIPAddress)
		switch folded := strings.ToLower(r.Name); {
		case !routeName.MatchString(r.Name):
			return bad("InvalidResourceName", "Resource name %s is invalid.", r.Name)
		case names[folded]:
			return bad("DuplicateResourceName", "Route %s appears twice.", r.Name)
		case ranges[r.AddressPrefix]:
			return bad(e.options.DuplicateCode, "Route %s has the address prefix %s of another route.", r.Name, r.AddressPrefix)
		case err == nil && p != p.Masked():
			return bad("InvalidCIDRNotation", "The address prefix %s of route %s has an invalid CIDR notation. For the given prefix length, the address prefix should be %s.", p, r.Name, p.Masked())
		case err != nil && strings.ContainsAny(r.AddressPrefix, "/:"), r.AddressPrefix == "":
			return bad("InvalidAddressPrefixFormat", "Address prefix %s for resource %s is not formatted correctly.", r.AddressPrefix, r.Name)
		case r.NextHopType == "VirtualAppliance" && hopErr != nil:
			return bad("InvalidNextHopIpAddress", "Next hop %s of route %s is not an address.", r.NextHopIPAddress, r.Name)
		case r.NextHopType == "VirtualAppliance" && err == nil && hop.Is4() != p.Addr().Is4():
			return bad("NextHopIpAddressFamilyMismatch", "Next hop %s of route %s is of another family.", hop, r.Name)
		default:
			names[folded], ranges[r.AddressPrefix] = true, true
		}
	}
	return next, cloud.Answer{}
}

func (e *Emulator) showInterface(n *iface) map[string]any {
	var configurations []any
	for i, a := range n.Addresses {
		version := "IPv4"
		if a.Is6() {
			version = "IPv6"
		}
		configurations = append(configurations, map[string]any{
			"name": fmt.Sprintf("ipconfig%d", i+1),
			"properties": map[string]any{
				"privateIPAddress": a.String(), "privateIPAddressVersion": version, "primary": i == 0, "subnet": map[string]any{"id": n.Subnet},
			},
		})
	}
	properties := map[string]any{"enableIPForwarding": n.Forwarding, "ipConfigurations": configurations, "provisioningState": "Succeeded"}
	shown := map[string]any{"location": e.options.Location}
	if n.body != nil {
		maps.Copy(shown, n.body)
		written, _ := n.body["properties"].(map[string]any)
		written = maps.Clone(written)
		maps.Copy(written, properties)
		properties = written
	}
	if n.Machine != "" {
		properties["virtualMachine"] = map[string]any{"id": n.Machine}
	}
	if n.SecurityGroup {
		properties["networkSecurityGroup"] = map[string]any{"id": e.ID(n.Group, "Microsoft.Network/networkSecurityGroups", "nodes")}
	}
	shown["properties"], shown["id"], shown["name"], shown["etag"] = properties, n.id, n.Name, etag(n.version)
	return shown
}

func (e *Emulator) shown(match func(*iface) bool) (all []any) {
	for _, id := range slices.Sorted(maps.Keys(e.interfaces)) {
		if match(e.interfaces[id]) {
			all = append(all, e.showInterface(e.interfaces[id]))
		}
	}
	return all
}

func (e *Emulator) listInterfaces(q query) cloud.Answer {
	return e.page(q, e.shown(func(n *iface) bool { return n.ScaleSet == "" && strings.EqualFold(n.Group, q.group) }))
}

func (e *Emulator) listInstances(q query) cloud.Answer {
	return e.page(q, e.shown(func(n *iface) bool {
		return strings.EqualFold(n.ScaleSet, q.name) && strings.EqualFold(n.Group, q.group)
	}))
}

func (e *Emulator) getInterface(q query) cloud.Answer {
	n := e.interfaces[q.id]
	if n == nil {
		return notFound(q)
	}
	return cloud.Answer{Body: e.showInterface(n), Header: http.Header{"Etag": {etag(n.version)}}}
}

// putInterface takes a change of the switch alone.
func (e *Emulator) putInterface(q query) cloud.Answer {
	n := e.interfaces[q.id]
	if n == nil {
		return notFound(q)
	}
	linked := []string{"Microsoft.Network/virtualNetworks/subnets/join/action"}
	if n.SecurityGroup {
		linked = append(linked, "Microsoft.Network/networkSecurityGroups/join/action")
	}
	for _, p := range linked {
		if !e.may(p) {
			return failure(http.StatusForbidden, "LinkedAuthorizationFailed", "The client '%s' has permission to perform action 'Microsoft.Network/networkInterfaces/write' on scope '%s'; however, it does not have permission to perform action(s) '%s' on the linked scope(s).", e.options.ClientID, n.id, p)
		}
	}
	if a, refused := stale(q, n.version); refused {
		return a
	}
	var body map[string]any
	if err := json.Unmarshal(q.body, &body); err != nil {
		return failure(http.StatusBadRequest, "InvalidRequestContent", "The request content was invalid: %v", err)
	}
	properties, _ := body["properties"].(map[string]any)
	configurations, _ := properties["ipConfigurations"].([]any)
	if len(configurations) != len(n.Addresses) || n.SecurityGroup != (properties["networkSecurityGroup"] != nil) {
		return failure(http.StatusBadRequest, "NetworkInterfaceMustKeepItsConfiguration", "The emulator lets nothing but enableIPForwarding change on %s.", n.id)
	}
	n.Forwarding, _ = properties["enableIPForwarding"].(bool)
	n.body, n.version = body, e.number()
	e.commit()
	return cloud.Answer{Body: e.showInterface(n)}
}

func (e *Emulator) getNetwork(q query) cloud.Answer {
	n := e.networks[q.id]
	if n == nil {
		return notFound(q)
	}
	space := func(ranges []netip.Prefix) map[string]any {
		texts := []string{}
		for _, r := range ranges {
			texts = append(texts, r.String())
		}
		return map[string]any{"addressPrefixes": texts}
	}
	subnets, peers := []any{}, []any{}
	for _, s := range n.subnets {
		content := space(s.ranges)
		if t := e.tables[s.table]; t != nil {
			content["routeTable"] = map[string]any{"id": t.id}
		}
		subnets = append(subnets, map[string]any{"id": s.id, "name": s.name, "properties": content})
	}
	for _, name := range slices.Sorted(maps.Keys(n.peers)) {
		peers = append(peers, map[string]any{"name": name, "properties": map[string]any{"peeringState": "Connected", "remoteAddressSpace": space(n.peers[name])}})
	}
	return cloud.Answer{Body: map[string]any{
		"id": n.id, "name": n.name, "location": e.options.Location,
		"properties": map[string]any{"addressSpace": space(n.ranges), "subnets": subnets, "virtualNetworkPeerings": peers},
	}}
}
