package cluster

import (
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// An Account is a service account.
type Account struct{ Namespace, Name string }

// User is the account's name as a user of the API.
func (a Account) User() string { return "system:serviceaccount:" + a.Namespace + ":" + a.Name }

// Token issues a token for an account, as a kubelet does for a pod.
func (c *Cluster) Token(t testing.TB, a Account) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	issued, err := c.Clientset.CoreV1().ServiceAccounts(a.Namespace).CreateToken(t.Context(), a.Name, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("issue a token for %s: %v", a.User(), err)
	}
	return issued.Status.Token
}

// As returns the configuration of a client that is an account, usable from the
// test's process.
func (c *Cluster) As(t testing.TB, a Account) *rest.Config {
	t.Helper()
	config := c.config(c.Admin.CAData, c.Token(t, a))
	config.Dial = c.dial
	return config
}

// Kubeconfig writes the client configuration of an account for a process that
// can reach the API server's address, and returns the file's path.
func (c *Cluster) Kubeconfig(t testing.TB, a Account) string {
	t.Helper()
	return c.writeKubeconfig(t, strings.ReplaceAll(a.User(), ":", "-"), c.Token(t, a), a.Namespace)
}
