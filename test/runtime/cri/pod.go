package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// callLimit bounds each call, as the kubelet bounds it.
const callLimit = 2 * time.Minute

// A Pod is what the kubelet asks a sandbox for.
type Pod struct {
	Namespace, Name, UID string
	// Annotations reach the runtime, which derives bandwidth limits from them.
	Annotations map[string]string
	// Ports are the pod's host ports.
	Ports []Port
}

// A Port is a TCP port of the node that leads to one of a pod.
type Port struct{ Host, Pod int32 }

// A Sandbox is a running pod sandbox as the runtime reports it.
type Sandbox struct {
	ID    string
	Pod   Pod
	Ready bool
	// Addresses are the pod's, the main one first.
	Addresses []netip.Addr
	// Netns is the file that stands for the pod's network namespace; empty when
	// the runtime knows it gone.
	Netns string
}

// maxHostname is what the kernel takes; the kubelet cuts longer names.
const maxHostname = 63

func (n *Node) config(p Pod) *runtimev1.PodSandboxConfig {
	c := &runtimev1.PodSandboxConfig{
		Metadata: &runtimev1.PodSandboxMetadata{
			Namespace: p.Namespace, Name: p.Name, Uid: p.UID, Attempt: n.attempts.Add(1),
		},
		Hostname:    p.Name[:min(len(p.Name), maxHostname)],
		Annotations: p.Annotations,
		DnsConfig:   &runtimev1.DNSConfig{},
		Linux:       &runtimev1.LinuxPodSandboxConfig{CgroupParent: n.cgroup.Name},
	}
	for _, port := range p.Ports {
		c.PortMappings = append(c.PortMappings, &runtimev1.PortMapping{
			Protocol: runtimev1.Protocol_TCP, HostPort: port.Host, ContainerPort: port.Pod,
		})
	}
	return c
}

// Run creates and starts a pod's sandbox and returns its id. An error is the
// runtime's, as it gets into the pod's event.
func (n *Node) Run(ctx context.Context, p Pod) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	r, err := n.runtime.RunPodSandbox(ctx, &runtimev1.RunPodSandboxRequest{Config: n.config(p)})
	return r.GetPodSandboxId(), err
}

// Stop ends a sandbox's processes and detaches it from the network.
func (n *Node) Stop(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_, err := n.runtime.StopPodSandbox(ctx, &runtimev1.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

// Remove stops a sandbox as the kubelet does before it removes it, and removes
// it.
func (n *Node) Remove(ctx context.Context, id string) error {
	if err := n.Stop(ctx, id); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	_, err := n.runtime.RemovePodSandbox(ctx, &runtimev1.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// Status asks the runtime for a sandbox.
func (n *Node) Status(ctx context.Context, id string) (*Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	r, err := n.runtime.PodSandboxStatus(ctx, &runtimev1.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return nil, err
	}
	return sandboxOf(r)
}

func sandboxOf(r *runtimev1.PodSandboxStatusResponse) (*Sandbox, error) {
	meta := r.GetStatus().GetMetadata()
	s := &Sandbox{
		ID:    r.GetStatus().GetId(),
		Pod:   Pod{Namespace: meta.GetNamespace(), Name: meta.GetName(), UID: meta.GetUid()},
		Ready: r.GetStatus().GetState() == runtimev1.PodSandboxState_SANDBOX_READY,
	}
	network := r.GetStatus().GetNetwork()
	texts := []string{network.GetIp()}
	for _, a := range network.GetAdditionalIps() {
		texts = append(texts, a.GetIp())
	}
	for _, text := range texts {
		if text == "" {
			continue
		}
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		s.Addresses = append(s.Addresses, a)
	}
	// The runtime tells the namespace only in the OCI runtime's configuration.
	var info struct {
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
	}
	if err := json.Unmarshal([]byte(r.GetInfo()["info"]), &info); err != nil {
		return nil, fmt.Errorf("read the runtime's details of sandbox %s: %w", s.ID, err)
	}
	for _, ns := range info.RuntimeSpec.Linux.Namespaces {
		if ns.Type == "network" {
			s.Netns = ns.Path
		}
	}
	return s, nil
}

// List lists the ids of all sandboxes, of every state.
func (n *Node) List(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	r, err := n.runtime.ListPodSandbox(ctx, &runtimev1.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, item := range r.GetItems() {
		ids = append(ids, item.GetId())
	}
	return ids, nil
}
