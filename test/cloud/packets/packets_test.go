package packets_test

import (
	"fmt"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vpcroute/vpcroute/test/cloud/aws"
	"github.com/vpcroute/vpcroute/test/cloud/azure"
	"github.com/vpcroute/vpcroute/test/cloud/gcp"
	"github.com/vpcroute/vpcroute/test/cloud/packets"
	"github.com/vpcroute/vpcroute/test/cloud/tencent"
	"github.com/vpcroute/vpcroute/test/netns"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

func TestPodsMeetThroughTheCloud(t *testing.T) {
	for name, start := range map[string]func(*netns.Box) packets.Cloud{
		"aws, checks to be switched off": func(b *netns.Box) packets.Cloud {
			_, c := onAWS(b, "switch-off")
			return c
		},
		"gcp, by instance": func(b *netns.Box) packets.Cloud {
			_, c := onGCP(b, "instance", true)
			return c
		},
		"gcp, by address": func(b *netns.Box) packets.Cloud {
			_, c := onGCP(b, "address", true)
			return c
		},
		"azure, forwarding to be switched on": func(b *netns.Box) packets.Cloud { return onAzure(t, b) },
		"tencent, global route":               func(b *netns.Box) packets.Cloud { return onTencent(b, "global-route", "--tencent-create-table") },
		"tencent, VPC table":                  func(b *netns.Box) packets.Cloud { return onTencent(b, "vpc") },
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

// R083: the source and destination check is on and is not ours to switch off.
// The routes are there, the packets do not arrive, and the log names the cause.
func TestSourceDestinationCheckOnAWS(t *testing.T) {
	packets.RunHindered(t, func(box *netns.Box) (packets.Cloud, packets.Hindrance) {
		e, c := onAWS(box, "report")
		return c, packets.Hindrance{
			Routed: func() bool { return len(e.Routes("rtb-1")) == 1+len(box.Nodes) }, // one is local
			Cause:  "source/destination check on",
			Remove: func() {
				for i := range box.Nodes {
					e.SetCheck(fmt.Sprintf("eni-%d", i), false)
				}
			},
		}
	})
}

func onAWS(box *netns.Box, check string) (*aws.Emulator, packets.Cloud) {
	o := aws.Defaults()
	e := aws.New(o)
	e.DocumentedRates()
	subnet := netip.MustParsePrefix("172.31.0.0/24")
	e.AddVPC("vpc-1", "rtb-1", subnet)
	e.AddSubnet("vpc-1", "subnet-1", subnet, "")
	for i, n := range box.Nodes {
		e.AddInterfaces(aws.Interface{ID: fmt.Sprintf("eni-%d", i), Subnet: "subnet-1", Instance: fmt.Sprintf("i-%08x", i), Addresses: n.Addresses, Check: true})
	}
	return e, packets.Cloud{
		Frame: e.Frame, Handler: e,
		Flags: func(url string) []string {
			return []string{
				"--vpc", "aws", "--cluster-id", "box", "--ledger", filepath.Join(box.Dir, "ledger"), "--aws-source-dest-check", check,
				"--aws-region", o.Region, "--aws-vpc-id", "vpc-1", "--aws-endpoint", url,
			}
		},
		Env: []string{"AWS_ACCESS_KEY_ID=" + o.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + o.SecretAccessKey},
	}
}

// R083: machines that may not forward. The routes are there, the packets do not
// arrive, and the log names the cause.
func TestForwardingForbiddenOnGCP(t *testing.T) {
	packets.RunHindered(t, func(box *netns.Box) (packets.Cloud, packets.Hindrance) {
		e, c := onGCP(box, "instance", false)
		return c, packets.Hindrance{
			Routed: func() bool { return len(e.Routes("shop-prod-1", "prod")) == len(box.Nodes) },
			Cause:  "canIpForward is off",
			Remove: func() { e.AddMachines(gcpMachines(box, true)...) },
		}
	})
}

func onGCP(box *netns.Box, nextHops string, forward bool) (*gcp.Emulator, packets.Cloud) {
	e := gcp.New(gcp.Defaults())
	e.DocumentedRates()
	e.AddNetwork("shop-prod-1", "prod", netip.MustParsePrefix("172.31.0.0/24"))
	e.AddMachines(gcpMachines(box, forward)...)
	for _, n := range box.Nodes {
		n.ProviderID = "gce://shop-prod-1/europe-west1-b/" + n.Name
	}
	return e, packets.Cloud{
		Frame: e.Frame, Handler: e,
		Flags: func(url string) []string {
			key := filepath.Join(box.Dir, "key.json")
			if err := os.WriteFile(key, gcp.Key(url), 0o600); err != nil {
				panic(err)
			}
			return []string{
				"--vpc", "gcp", "--cluster-id", "box", "--gcp-project", "shop-prod-1", "--gcp-network", "prod",
				"--gcp-next-hops", nextHops, "--gcp-credentials", key, "--gcp-endpoint", url,
			}
		},
	}
}

func gcpMachines(box *netns.Box, forward bool) (machines []gcp.Machine) {
	for _, n := range box.Nodes {
		machines = append(machines, gcp.Machine{
			Project: "shop-prod-1", Zone: "europe-west1-b", Name: n.Name, Network: "projects/shop-prod-1/global/networks/prod",
			Addresses: n.Addresses, CanIPForward: forward,
		})
	}
	return machines
}

// onAzure has interfaces that do not forward yet, writes that take a second, and
// an identity endpoint of its own, whose URL the controller finds in its
// environment.
func onAzure(t *testing.T, box *netns.Box) packets.Cloud {
	o := azure.Defaults()
	o.OperationTime = time.Second
	e := azure.New(o)
	e.DocumentedRates()
	subnet := netip.MustParsePrefix("172.31.0.0/24")
	e.AddTable("net", "routes", nil)
	e.AddNetwork("net", "vnet", subnet)
	e.AddSubnet("net", "vnet", "nodes", e.ID("net", "Microsoft.Network/routeTables", "routes"), subnet)
	for i, n := range box.Nodes {
		name := fmt.Sprintf("vm-%d", i)
		e.AddMachine("net", name, e.SubnetID("net", "vnet", "nodes"), n.Addresses...)
		e.SetForwarding(name+"-nic", false)
	}
	identity := httptest.NewServer(e)
	t.Cleanup(identity.Close)
	return packets.Cloud{
		Frame: e.Frame, Handler: e,
		Flags: func(url string) []string {
			return []string{
				"--vpc", "azure", "--cluster-id", "box", "--azure-subscription", o.Subscription, "--azure-resource-group", "net",
				"--azure-table", "routes", "--azure-endpoint", url, "--azure-credentials", "managed-identity", "--azure-set-forwarding",
			}
		},
		Env: []string{"IDENTITY_ENDPOINT=" + identity.URL + "/msi/token", "IDENTITY_HEADER=" + o.IdentityHeader},
	}
}
