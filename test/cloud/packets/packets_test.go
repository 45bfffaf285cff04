package packets_test

import (
	"net/netip"
	"testing"

	"github.com/vpcroute/vpcroute/test/cloud/packets"
	"github.com/vpcroute/vpcroute/test/cloud/tencent"
	"github.com/vpcroute/vpcroute/test/netns"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

func TestPodsMeetThroughTheCloud(t *testing.T) {
	for name, start := range map[string]func(*netns.Box) packets.Cloud{
		"tencent, global route": func(b *netns.Box) packets.Cloud { return onTencent(b, "global-route", "--tencent-create-table") },
		"tencent, VPC table":    func(b *netns.Box) packets.Cloud { return onTencent(b, "vpc") },
	} {
		t.Run(name, func(t *testing.T) { packets.Run(t, start) })
	}
}

func onTencent(box *netns.Box, mode string, more ...string) packets.Cloud {
	o := tencent.Defaults()
	e := tencent.New(o)
	e.DocumentedRates()
	subnet := netip.MustParsePrefix("172.31.0.0/24")
	e.AddVPC("vpc-1", subnet)
	e.AddTable("vpc-1", "rtb-1", nil)
	e.AddSubnet("vpc-1", "subnet-1", subnet, "rtb-1")
	for _, n := range box.Nodes {
		e.AddMachines("vpc-1", n.Addresses...)
	}
	return packets.Cloud{
		Frame: e.Frame, Handler: e,
		Flags: func(url string) []string {
			return append(more, "--vpc", "tencent", "--cluster-id", "box", "--tencent-mode", mode,
				"--tencent-region", o.Region, "--tencent-vpc-id", "vpc-1", "--tencent-endpoint", url)
		},
		Env: []string{"TENCENTCLOUD_SECRET_ID=" + o.SecretID, "TENCENTCLOUD_SECRET_KEY=" + o.SecretKey},
	}
}
