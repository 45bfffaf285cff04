package azure_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/azure"
)

// R083: several interfaces, and every provider ID that is known.
func TestNextHop(t *testing.T) {
	const subscription = "azure:///subscriptions/11111111-2222-3333-4444-555555555555"
	tests := []struct {
		name     string
		provider string
		address  []string
		want     vpc.NextHop
		class    vpc.Class
		text     string
	}{
		{"virtual machine", subscription + "/resourceGroups/Net/providers/Microsoft.Compute/virtualMachines/vm-1", []string{"10.0.0.11"}, "10.0.0.11", 0, ""},
		{"another case", subscription + "/resourceGroups/net/providers/microsoft.compute/VirtualMachines/VM-1", []string{"10.0.0.11"}, "10.0.0.11", 0, ""},
		{"instance of a scale set", subscription + "/resourceGroups/net/providers/Microsoft.Compute/virtualMachineScaleSets/pool/virtualMachines/3", []string{"10.0.1.3"}, "10.0.1.3", 0, ""},
		{"no provider ID", "", []string{"10.0.0.11"}, "10.0.0.11", 0, ""},
		{"three interfaces, the second has the address", subscription + "/resourceGroups/net/providers/Microsoft.Compute/virtualMachines/three", []string{"10.0.2.2"}, "10.0.2.2", 0, ""},
		{"its first address is on no interface", subscription + "/resourceGroups/net/providers/Microsoft.Compute/virtualMachines/three", []string{"192.168.7.7", "10.0.2.2"}, "10.0.2.2", 0, ""},
		{"IPv4 dressed as IPv6", subscription + "/resourceGroups/net/providers/Microsoft.Compute/virtualMachines/vm-1", []string{"::ffff:10.0.0.11"}, "10.0.0.11", 0, ""},
		{"address of another machine", subscription + "/resourceGroups/net/providers/Microsoft.Compute/virtualMachines/vm-1", []string{"10.0.2.2"}, "", vpc.NotFound, "attached to vm-1"},
		{"no such machine", subscription + "/resourceGroups/net/providers/Microsoft.Compute/virtualMachines/gone", []string{"10.0.0.77"}, "", vpc.NotFound, "attached to gone"},
		{"no provider ID, no such address", "", []string{"10.0.0.77"}, "", vpc.NotFound, "it has no provider ID"},
		{"no IPv4 address", subscription + "/resourceGroups/net/providers/Microsoft.Compute/virtualMachines/vm-1", []string{"fd00:1::b"}, "", vpc.Invalid, "no internal IPv4 address"},
		{"another cloud's", "aws:///eu-west-1a/i-0a1b2c3d", []string{"10.0.0.11"}, "", vpc.Invalid, "is not a machine of Azure"},
		{"of another kind", subscription + "/resourceGroups/net/providers/Microsoft.HybridCompute/machines/vm-1", []string{"10.0.0.11"}, "", vpc.Invalid, "is not a machine of Azure"},
		{"no path", "azure://vm-1", []string{"10.0.0.11"}, "", vpc.Invalid, "is not a machine of Azure"},
		{"another subscription", "azure:///subscriptions/22222222-2222-3333-4444-555555555555/resourceGroups/net/providers/Microsoft.Compute/virtualMachines/vm-1", []string{"10.0.0.11"}, "", vpc.Invalid, "another subscription"},
		{"subnet of another table (R068)", subscription + "/resourceGroups/net/providers/Microsoft.Compute/virtualMachines/far", []string{"10.1.0.5"}, "", vpc.Invalid, "subnet vnet/far, which uses route table routes-far, which is not managed"},
		{"subnet of no table (R068)", subscription + "/resourceGroups/net/providers/Microsoft.Compute/virtualMachines/bare", []string{"10.0.128.5"}, "", vpc.Invalid, "subnet vnet/bare, which uses no route table"},
		{"does not forward", subscription + "/resourceGroups/net/providers/Microsoft.Compute/virtualMachines/still", []string{"10.0.3.3"}, "", vpc.Invalid, "IP forwarding is off on network interface still-nic"},
		{"scale set that does not forward", subscription + "/resourceGroups/net/providers/Microsoft.Compute/virtualMachineScaleSets/still/virtualMachines/0", []string{"10.0.3.4"}, "", vpc.Invalid, "network profile of scale set still"},
	}
	w := newWorld(func(o *emulated.Options) { o.PageSize = 2 })
	w.startMachines(1)
	w.AddInstance(theGroup, "pool", 3, w.near(), addrs("10.0.1.3")...)
	three := w.ID(theGroup, "Microsoft.Compute/virtualMachines", "three")
	for name, a := range map[string]string{"a": "10.0.2.1", "b": "10.0.2.2", "c": "10.0.2.3"} {
		// The others need not forward.
		w.AddInterface(emulated.Interface{Group: theGroup, Name: "three-" + name, Machine: three, Subnet: w.near(), Addresses: addrs(a), Forwarding: name == "b"})
	}
	w.AddMachine(theGroup, "far", w.far(), addrs("10.1.0.5")...)
	w.AddSubnet(theGroup, theNetwork, "bare", "")
	w.AddMachine(theGroup, "bare", w.SubnetID(theGroup, theNetwork, "bare"), addrs("10.0.128.5")...)
	w.AddMachine(theGroup, "still", w.near(), addrs("10.0.3.3")...)
	w.AddInstance(theGroup, "still", 0, w.near(), addrs("10.0.3.4")...)
	w.SetForwarding("still-nic", false)
	table := w.table(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := table.NextHop(t.Context(), vpc.Node{Name: "a", ProviderID: tt.provider, Addresses: addrs(tt.address...)}, vpc.IPv4)
			switch {
			case tt.text == "" && (err != nil || got != tt.want):
				t.Errorf("%q, %v, want %q", got, err, tt.want)
			case tt.text != "" && (err == nil || vpc.ClassOf(err) != tt.class || !strings.Contains(err.Error(), tt.text)):
				t.Errorf("%v (%v), want %v: %q", err, vpc.ClassOf(err), tt.class, tt.text)
			}
		})
	}
}

// A node that joins is found at once, a switched-on interface within half a
// minute, and machines that nobody finds do not become a flood of look-ups
// (R058).
func TestLookUpsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.startMachines(numbers(1, 50)...)
		table := w.table(t)
		ask := func(i int) error { _, err := table.NextHop(t.Context(), w.node(i), vpc.IPv4); return err }
		lists := func() int { return len(w.Calls(emulated.ListInterfaces)) }
		for i := range 50 {
			if err := ask(i + 1); err != nil {
				t.Fatal(err)
			}
		}
		if n := lists(); n != 1 {
			t.Errorf("%d lists for 50 machines", n)
		}
		time.Sleep(10 * time.Second)
		w.startMachines(60)
		if err := ask(60); err != nil {
			t.Errorf("a newcomer: %v", err)
		}
		w.Forget()
		for range 6 {
			for i := range 50 {
				if err := ask(100 + i); vpc.ClassOf(err) != vpc.NotFound {
					t.Fatalf("a machine that is not there: %v", err)
				}
			}
			time.Sleep(5 * time.Second)
		}
		if n := lists(); n > 6 {
			t.Errorf("%d lists for 50 lost machines in 6 passes", n)
		}
		w.SetForwarding("vm-1-nic", false)
		time.Sleep(6 * time.Minute)
		if err := ask(1); vpc.ClassOf(err) != vpc.Invalid {
			t.Errorf("switched off: %v", err)
		}
		w.SetForwarding("vm-1-nic", true)
		time.Sleep(30 * time.Second)
		if err := ask(1); err != nil {
			t.Errorf("switched on again: %v", err)
		}
	})
}

// R083: forwarding is switched on where that is allowed, and what else the
// interface has stays; where it cannot be, the node's error says why.
func TestForwardingIsSwitchedOn(t *testing.T) {
	for _, tt := range []struct {
		name  string
		setUp func(w *world)
		class vpc.Class
		text  string
	}{
		{"allowed", func(*world) {}, 0, ""},
		{"another writer comes in between", func(w *world) {
			w.Inject(cloud.Fault{Operation: emulated.PutInterface, Times: 1, Answer: &cloud.Answer{Code: "PreconditionFailed"}})
		}, 0, ""},
		{"no permission", func(w *world) { w.Deny("Microsoft.Network/networkInterfaces/write") }, vpc.Denied, "cannot be switched on"},
		{"no permission for its subnet", func(w *world) { w.Deny("Microsoft.Network/virtualNetworks/subnets/join/action") }, vpc.Denied, "subnets/join/action"},
		{"not wanted", func(w *world) { w.config.SetForwarding = false }, vpc.Invalid, "--azure-set-forwarding"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			w.config.SetForwarding = true
			w.AddInterface(emulated.Interface{
				Group: theGroup, Name: "nic", Machine: w.ID(theGroup, "Microsoft.Compute/virtualMachines", vmName(1)),
				Subnet: w.near(), Addresses: addrs("10.0.0.11", "fd00:1::b"), SecurityGroup: true,
			})
			tt.setUp(w)
			table := w.table(t)
			got, err := table.NextHop(t.Context(), w.node(1), vpc.IPv4)
			if tt.text == "" && (err != nil || got != hop(1) || !w.Forwards("nic")) {
				t.Errorf("%q, %v, forwarding %v", got, err, w.Forwards("nic"))
			}
			if tt.text != "" && (err == nil || vpc.ClassOf(err) != tt.class || !strings.Contains(err.Error(), tt.text) || w.Forwards("nic")) {
				t.Errorf("%v (%v), want %v: %q", err, vpc.ClassOf(err), tt.class, tt.text)
			}
		})
	}
}
