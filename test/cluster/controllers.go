package cluster

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// StartControllers starts the parts of kube-controller-manager that act on
// Nodes, and kube-scheduler: Nodes get podCIDRs out of the cluster's ranges and
// taints after their conditions, and pods are placed on the Nodes that they
// tolerate. Nodes need no heartbeats.
func (c *Cluster) StartControllers(t testing.TB, clusterCIDRs []netip.Prefix) {
	t.Helper()
	kubeconfig := c.adminKubeconfig(t)
	ranges := make([]string, len(clusterCIDRs))
	for i, r := range clusterCIDRs {
		ranges[i] = r.String()
	}
	common := []string{"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0"}
	manager := append(common,
		"--controllers=node-ipam-controller,node-lifecycle-controller,serviceaccount-controller",
		"--allocate-node-cidrs",
		"--cluster-cidr="+strings.Join(ranges, ","),
		"--node-monitor-grace-period=24h",
	)
	for _, p := range []*Process{
		NewProcess(t, c.where.Namespace, server(t, "k8s.io/kubernetes/cmd/kube-controller-manager"), manager...),
		NewProcess(t, c.where.Namespace, server(t, "k8s.io/kubernetes/cmd/kube-scheduler"), common...),
	} {
		p.Start(t)
	}
}

func (c *Cluster) adminKubeconfig(t testing.TB) string {
	t.Helper()
	return c.writeKubeconfig(t, "admin", adminToken, "")
}

// writeKubeconfig writes a client configuration for processes that can reach
// the API server's address.
func (c *Cluster) writeKubeconfig(t testing.TB, name, token, namespace string) (path string) {
	t.Helper()
	config := c.config(c.Admin.CAData, token)
	file := clientcmdapi.NewConfig()
	file.Clusters["cluster"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	file.Contexts["context"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: name, Namespace: namespace}
	file.CurrentContext = "context"
	path = filepath.Join(c.dir, fmt.Sprintf("%s.kubeconfig", name))
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		t.Fatal(err)
	}
	return path
}
