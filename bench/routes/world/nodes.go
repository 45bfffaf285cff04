package world

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Range is the cluster CIDR. It has room for 16,384 Nodes.
var Range = netip.MustParsePrefix("10.128.0.0/10")

// images is how many images a Node lists; a kubelet reports up to 50.
const images = 20

// NodeName is the name of a node.
func NodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// Machine is the id of a node's machine, by the node's name.
func Machine(node string) string { return "i-" + node }

// PodCIDR is a node's range.
func PodCIDR(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(128 + i>>8), byte(i), 0}), 24)
}

// Routes are those that nodes from one number up to another ask for.
func Routes(from, to int) []Route {
	var routes []Route
	for i := from; i < to; i++ {
		routes = append(routes, Route{PodCIDR(i), Machine(NodeName(i))})
	}
	return routes
}

// Node is a Node as a kubelet and the usual controllers of a cluster leave it,
// but for the network: labels, addresses, conditions, images and the records of
// who manages which field.
func Node(i int) *corev1.Node {
	name := NodeName(i)
	began := metav1.NewTime(time.Unix(1.7e9, 0))
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(fmt.Sprintf("2f1e7c1a-0000-4000-8000-%012d", i)), CreationTimestamp: began,
			Labels: map[string]string{}, Annotations: map[string]string{
				"node.alpha.kubernetes.io/ttl":                           "0",
				"volumes.kubernetes.io/controller-managed-attach-detach": "true",
				"csi.volume.kubernetes.io/nodeid":                        fmt.Sprintf(`{"disk.csi.example.com":"%s"}`, Machine(name)),
			},
		},
		Spec: corev1.NodeSpec{PodCIDR: PodCIDR(i).String(), PodCIDRs: []string{PodCIDR(i).String()}, ProviderID: "bench:///zone-a/" + Machine(name)},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.16.%d.%d", i>>8, i&255)},
				{Type: corev1.NodeHostName, Address: name},
			},
			Capacity:    quantities("8", "32Gi"),
			Allocatable: quantities("7800m", "29Gi"),
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: fmt.Sprintf("%032d", i), SystemUUID: fmt.Sprintf("%036d", i), BootID: fmt.Sprintf("%036d", i),
				KernelVersion: "6.12.48", OSImage: "Debian GNU/Linux 13 (trixie)", ContainerRuntimeVersion: "containerd://2.2.0",
				KubeletVersion: "v1.37.2", OperatingSystem: "linux", Architecture: "amd64",
			},
		},
	}
	for _, label := range []string{
		"kubernetes.io/hostname", "beta.kubernetes.io/arch", "beta.kubernetes.io/os", "kubernetes.io/arch", "kubernetes.io/os",
		"node.kubernetes.io/instance-type", "topology.kubernetes.io/region", "topology.kubernetes.io/zone", "example.com/pool", "example.com/pool-version",
	} {
		n.Labels[label] = name
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: corev1.ConditionFalse, Reason: "Kubelet" + string(kind), Message: "kubelet has found that it is so",
			LastHeartbeatTime: began, LastTransitionTime: began,
		})
	}
	for k := range images {
		image := fmt.Sprintf("registry.example.com/team-%d/service-%d", i%7, k)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			Names: []string{fmt.Sprintf("%s@sha256:%064d", image, k), image + ":v1.2.3"}, SizeBytes: int64(k) << 20,
		})
	}
	n.ManagedFields = managed(n, "kubelet", "kube-controller-manager")
	return n
}

func quantities(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
	}
}

// managed are the records that an API server keeps of who manages which field
// of an object, about as large as it makes them.
func managed(o any, managers ...string) []metav1.ManagedFieldsEntry {
	var entries []metav1.ManagedFieldsEntry
	for _, m := range managers {
		entries = append(entries, metav1.ManagedFieldsEntry{
			Manager: m, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: fieldsOf(o),
		})
	}
	return entries
}

func fieldsOf(o any) *metav1.FieldsV1 {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // it is made here
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		panic(err)
	}
	delete(tree, "metadata")
	delete(tree, "kind")
	delete(tree, "apiVersion")
	raw, err := json.Marshal(fields(tree))
	if err != nil {
		panic(err)
	}
	return metav1.NewFieldsV1(string(raw))
}

// fields is a field set as the API server spells it. It treats lists as whole
// values.
func fields(tree map[string]any) map[string]any {
	set := map[string]any{}
	for name, value := range tree {
		inner, _ := value.(map[string]any)
		set["f:"+name] = fields(inner)
	}
	return set
}
