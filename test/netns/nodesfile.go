package netns

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"
)

// A NodeObject is what a cluster says about a node: the fields of a Kubernetes
// Node that the route controller reads.
type NodeObject struct {
	Name       string
	UID        string
	Created    time.Time
	PodCIDRs   []netip.Prefix
	ProviderID string
	Addresses  []netip.Addr // of type InternalIP
}

// clusterBirth is when the first node was created.
var clusterBirth = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Object describes the node truthfully. Nodes are a minute apart in age, the
// first one being the oldest.
func (n *Node) Object() NodeObject {
	var number int
	_, _ = fmt.Sscanf(n.Name, "node-%d", &number)
	return NodeObject{
		Name:       n.Name,
		UID:        fmt.Sprintf("00000000-0000-4000-8000-%012d", number),
		Created:    clusterBirth.Add(time.Duration(number) * time.Minute),
		PodCIDRs:   n.PodCIDRs,
		ProviderID: n.ProviderID,
		Addresses:  n.Addresses,
	}
}

// kubernetes spells the object as the Kubernetes API does.
func (o NodeObject) kubernetes() map[string]any {
	type address struct {
		Type    string     `json:"type"`
		Address netip.Addr `json:"address"`
	}
	var addresses []address
	for _, a := range o.Addresses {
		addresses = append(addresses, address{"InternalIP", a})
	}
	spec := map[string]any{"podCIDRs": o.PodCIDRs}
	if len(o.PodCIDRs) > 0 {
		spec["podCIDR"] = o.PodCIDRs[0]
	}
	if o.ProviderID != "" {
		spec["providerID"] = o.ProviderID
	}
	return map[string]any{
		"apiVersion": "v1",
		"kind":       "Node",
		"metadata":   map[string]any{"name": o.Name, "uid": o.UID, "creationTimestamp": o.Created},
		"spec":       spec,
		"status":     map[string]any{"addresses": addresses},
	}
}

// Objects describes all nodes.
func (b *Box) Objects() []NodeObject {
	var objects []NodeObject
	for _, n := range b.Nodes {
		objects = append(objects, n.Object())
	}
	return objects
}

// NodesFile is the file that stands for the API server's list of Nodes.
func (b *Box) NodesFile() string { return filepath.Join(b.Dir, "nodes.yaml") }

// WriteNodes replaces the nodes file as a whole.
func (b *Box) WriteNodes(objects ...NodeObject) error {
	items := []any{}
	for _, o := range objects {
		items = append(items, o.kubernetes())
	}
	text, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		return err
	}
	if err := os.WriteFile(b.NodesFile()+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(b.NodesFile()+".new", b.NodesFile())
}
