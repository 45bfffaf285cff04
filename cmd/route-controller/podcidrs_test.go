package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestAllocationFlags(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dual := []string{"--kubeconfig", "x", "--cluster-cidr", "10.244.0.0/16", "--cluster-cidr", "fd00::/48"}
	for _, c := range []struct {
		situation string
		flags     []string
		want      string // the ranges, as "CIDR bits"
		problem   string
	}{
		{"not asked for", nil, "", ""},
		{"as kube-controller-manager would", []string{"--allocate-node-cidrs"}, "10.244.0.0/16 24, fd00::/48 64", ""},
		{"other sizes", []string{"--allocate-node-cidrs", "--node-cidr-mask-size-ipv4=26", "--node-cidr-mask-size-ipv6=80"}, "10.244.0.0/16 26, fd00::/48 80", ""},
		{"larger than the cluster", []string{"--allocate-node-cidrs", "--node-cidr-mask-size-ipv4=15"}, "", "--node-cidr-mask-size-ipv4"},
		{"with a nodes file", []string{"--allocate-node-cidrs", "--kubeconfig=", "--nodes=x"}, "", "--allocate-node-cidrs is given with --nodes"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			o := given(t, append(append([]string{"--vpc", "linux"}, dual...), c.flags...)...)
			s, err := o.settings(t.Context(), needNodes)
			if c.problem != "" {
				if err == nil || !strings.Contains(err.Error(), c.problem) {
					t.Errorf("error is %v, want %q in it", err, c.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range s.podCIDRs {
				got = append(got, fmt.Sprint(r.CIDR, " ", r.Bits))
			}
			if text := strings.Join(got, ", "); text != c.want {
				t.Errorf("allocates from %q, want %q", text, c.want)
			}
		})
	}
}
