package kube

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/routes"
)

func TestProbe(t *testing.T) {
	body, status := "", http.StatusOK
	// The gateway of 127.0.0.0/8 is 127.0.0.1.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/whoami" {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	probe := NewProbe(server.Listener.Addr().(*net.TCPAddr).Port)
	target := routes.Target{Node: "a", UID: "1", Destination: netip.MustParsePrefix("127.0.0.0/8")}
	for _, c := range []struct {
		situation, body string
		status          int
		wrong           bool
		want            string
	}{
		{"the right node", `{"node":"a","uid":"1","podCIDRs":["127.0.0.0/8"],"bootID":"x"}`, 200, false, ""},
		{"an agent without its UID", `{"node":"a"}`, 200, false, ""},
		{"another node", `{"node":"b","uid":"2"}`, 200, true, "node b"},
		{"the Node of before", `{"node":"a","uid":"0"}`, 200, true, "UID 0"},
		{"somebody else", "hello", 200, false, "no agent"},
		{"an error", "", 500, false, "500"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			body, status = c.body, c.status
			err := probe.Prove(t.Context(), target)
			var wrong *routes.WrongNodeError
			if errors.As(err, &wrong) != c.wrong || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	server.Close()
	if probe.Prove(t.Context(), target) == nil {
		t.Error("silence is taken for an answer")
	}
}
