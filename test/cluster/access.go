package cluster

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An Access is one thing that an account may do or has done.
type Access struct {
	// Namespace is where; empty for the whole cluster.
	Namespace string
	// Group and Resource are those of the API, a subresource with its slash:
	// "nodes/status".
	Group, Resource string
	// Verb is that of role-based access control.
	Verb string
}

// Granted returns what the cluster's role bindings name an account for, in
// order; not what it may do as a member of a group.
func (c *Cluster) Granted(t testing.TB, a Account) []Access {
	t.Helper()
	granted := map[Access]bool{}
	add := func(namespace string, rules []rbacv1.PolicyRule) {
		for _, access := range expand(namespace, rules) {
			granted[access] = true
		}
	}
	var clusterBindings rbacv1.ClusterRoleBindingList
	c.list(t, &clusterBindings)
	for _, b := range clusterBindings.Items {
		if names(b.Subjects, a) {
			add("", c.rules(t, "", b.RoleRef))
		}
	}
	var bindings rbacv1.RoleBindingList
	c.list(t, &bindings)
	for _, b := range bindings.Items {
		if names(b.Subjects, a) {
			add(b.Namespace, c.rules(t, b.Namespace, b.RoleRef))
		}
	}
	return sorted(granted)
}

func (c *Cluster) list(t testing.TB, list client.ObjectList) {
	t.Helper()
	if err := c.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
}

func names(subjects []rbacv1.Subject, a Account) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == a.Namespace && s.Name == a.Name
	})
}

// rules are those of the role that a binding refers to.
func (c *Cluster) rules(t testing.TB, namespace string, ref rbacv1.RoleRef) []rbacv1.PolicyRule {
	t.Helper()
	if ref.Kind == "ClusterRole" {
		var role rbacv1.ClusterRole
		c.get(t, client.ObjectKey{Name: ref.Name}, &role)
		return role.Rules
	}
	var role rbacv1.Role
	c.get(t, client.ObjectKey{Namespace: namespace, Name: ref.Name}, &role)
	return role.Rules
}

func (c *Cluster) get(t testing.TB, key client.ObjectKey, o client.Object) {
	t.Helper()
	if err := c.Client.Get(t.Context(), key, o); err != nil {
		t.Fatal(err)
	}
}

func expand(namespace string, rules []rbacv1.PolicyRule) (accesses []Access) {
	for _, r := range rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					accesses = append(accesses, Access{namespace, group, resource, verb})
				}
			}
		}
		for _, path := range r.NonResourceURLs {
			for _, verb := range r.Verbs {
				accesses = append(accesses, Access{"", "", path, verb})
			}
		}
	}
	return accesses
}

// Used returns what an account has done so far, and what it was forbidden to
// do, each in order.
func (c *Cluster) Used(t testing.TB, a Account) (allowed, forbidden []Access) {
	t.Helper()
	text, err := os.ReadFile(c.auditTrail())
	if err != nil {
		t.Fatalf("read the audit log: %v", err)
	}
	did, didNot := map[Access]bool{}, map[Access]bool{}
	for line := range strings.Lines(string(text)) {
		var e auditEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			continue // the last line, while it is being written
		}
		switch {
		case e.User.Username != a.User():
		case e.Annotations["authorization.k8s.io/decision"] == "forbid":
			didNot[e.access()] = true
		default:
			did[e.access()] = true
		}
	}
	return sorted(did), sorted(didNot)
}

// An auditEvent is the part of an audit.k8s.io/v1 Event that says who did what.
type auditEvent struct {
	User      struct{ Username string }
	Verb      string
	ObjectRef struct {
		APIGroup, Resource, Subresource, Namespace string
	}
	RequestURI  string
	Annotations map[string]string
}

func (e auditEvent) access() Access {
	a := Access{e.ObjectRef.Namespace, e.ObjectRef.APIGroup, e.ObjectRef.Resource, e.Verb}
	if a.Resource == "" {
		a.Resource, _, _ = strings.Cut(e.RequestURI, "?")
	}
	if e.ObjectRef.Subresource != "" {
		a.Resource += "/" + e.ObjectRef.Subresource
	}
	return a
}

// Unused returns the granted accesses that none of the used ones needed.
func Unused(granted, used []Access) []Access {
	return slices.DeleteFunc(slices.Clone(granted), func(g Access) bool {
		return slices.ContainsFunc(used, func(u Access) bool {
			if g.Namespace == "" {
				u.Namespace = ""
			}
			return g == u
		})
	})
}

func sorted(set map[Access]bool) []Access {
	return slices.SortedFunc(maps.Keys(set), func(a, b Access) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb))
	})
}
