package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/vpcroute/vpcroute/pkg/routes"
)

// AgentPort is where the node agent answers by default.
const AgentPort = 9470

// probeTimeout is how long one packet may be on its way and back.
const probeTimeout = 2 * time.Second

// A Probe proves a route by asking the node agent over it who it is.
type Probe struct {
	port   int
	client *http.Client
}

// NewProbe makes a Probe that asks agents on a port.
func NewProbe(port int) *Probe {
	dialer := &net.Dialer{Timeout: probeTimeout}
	return &Probe{port, &http.Client{
		Timeout: probeTimeout,
		Transport: &http.Transport{
			DialContext: dialer.DialContext,
			// Every proof takes a new connection: an old one may have another way.
			DisableKeepAlives: true,
		},
	}}
}

// Prove asks at the gateway of the target's range, its first usable address.
func (p *Probe) Prove(ctx context.Context, target routes.Target) error {
	gateway := target.Destination.Masked().Addr().Next()
	url := "http://" + net.JoinHostPort(gateway.String(), strconv.Itoa(p.port)) + "/whoami"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, response.Status)
	}
	var who struct {
		Node string `json:"node"`
		UID  string `json:"uid"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<16)).Decode(&who); err != nil {
		return fmt.Errorf("%s answered what no agent says: %w", url, err)
	}
	// An agent that does not know its Node's UID yet names the node alone.
	if who.Node != target.Node || who.UID != "" && target.UID != "" && who.UID != target.UID {
		return &routes.WrongNodeError{Got: fmt.Sprintf("%s (UID %s)", who.Node, who.UID), Want: fmt.Sprintf("%s (UID %s)", target.Node, target.UID)}
	}
	return nil
}
