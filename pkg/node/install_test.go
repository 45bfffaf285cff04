package node_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/netconf"
	"github.com/vpcroute/vpcroute/pkg/node"
)

func network() node.Network {
	return node.Network{
		CNIVersion: "1.1.0", Bridge: "cbr0", MTU: 8500,
		PodCIDRs: []netip.Prefix{prefix("10.244.1.0/24"), prefix("fd00:10:244:1::/64")},
	}
}

func conflist(t *testing.T, n node.Network) []byte {
	t.Helper()
	b, err := n.Conflist()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestConflistIsWhatThePluginReads loads the conflist with the runtimes' own
// library and parses our entry with the plugin's parser.
func TestConflistIsWhatThePluginReads(t *testing.T) {
	for _, version := range node.CNIVersions {
		n := network()
		n.CNIVersion = version
		list, err := libcni.NetworkConfFromBytes(conflist(t, n))
		if err != nil {
			t.Fatal(err)
		}
		var types []string
		for _, p := range list.Plugins {
			types = append(types, p.Network.Type)
		}
		if want := []string{"vpcroute", "portmap", "bandwidth"}; !slices.Equal(types, want) {
			t.Errorf("plugins %v, want %v", types, want)
		}
		// R054: nothing in it expires.
		for _, word := range []string{"token", "kubeconfig", "certificate", "password"} {
			if strings.Contains(strings.ToLower(string(conflist(t, n))), word) {
				t.Errorf("the conflist has a %s", word)
			}
		}
		if list.CNIVersion != version || list.Name != node.NetworkName {
			t.Errorf("version %q, name %q", list.CNIVersion, list.Name)
		}
		conf, err := netconf.Parse(list.Plugins[0].Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(n.PodCIDRs, conf.PodCIDRs, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" || conf.MTU != 8500 || conf.Bridge != "cbr0" {
			t.Errorf("%s, %+v", d, conf)
		}
	}
}

// programs are all that the agent brings.
var programs = append(slices.Clone(node.Binaries), node.Loopback)

// installation is one in a temporary folder, with programs to install.
func installation(t *testing.T) node.Installation {
	t.Helper()
	root := t.TempDir()
	i := node.Installation{Source: filepath.Join(root, "source"), BinDir: filepath.Join(root, "bin"), ConfDir: filepath.Join(root, "net.d")}
	if err := os.Mkdir(i.Source, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range programs {
		put(t, filepath.Join(i.Source, name), "program "+name)
	}
	return i
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestBinariesAreInstalledOnce(t *testing.T) {
	i := installation(t)
	changed, err := i.WriteBinaries()
	if err != nil || !slices.Equal(changed, programs) {
		t.Fatalf("first time: %v, %v", changed, err)
	}
	if changed, err = i.WriteBinaries(); err != nil || len(changed) != 0 {
		t.Fatalf("second time: %v, %v", changed, err)
	}
	put(t, filepath.Join(i.Source, "vpcroute"), "newer program")
	if changed, err = i.WriteBinaries(); err != nil || !slices.Equal(changed, []string{"vpcroute"}) {
		t.Fatalf("upgrade: %v, %v", changed, err)
	}
	if info, err := os.Stat(filepath.Join(i.BinDir, "vpcroute")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestR051RivalIsNamedNeverTouched has configurations of others beside ours, in
// every order that a runtime may see.
func TestR051RivalIsNamedNeverTouched(t *testing.T) {
	for name, c := range map[string]struct {
		others []string
		first  bool
		rival  string
	}{
		"alone":                        {nil, false, ""},
		"a lower one":                  {[]string{"05-other.conflist"}, false, "05-other.conflist"},
		"a lower one, ours first":      {[]string{"05-other.conflist"}, true, ""},
		"lower even than first":        {[]string{"00-aaa.conf"}, true, "00-aaa.conf"},
		"a higher one":                 {[]string{"99-loopback.conf"}, false, ""},
		"a file no runtime loads":      {[]string{"00-other.conflist.disabled", "00-README"}, false, ""},
		"the lowest of several":        {[]string{"06-b.json", "05-a.conf", "99-z.conflist"}, false, "05-a.conf"},
		"distribution's sample bridge": {[]string{"100-crio-bridge.conf"}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			i := installation(t)
			i.First = c.first
			for _, o := range c.others {
				put(t, filepath.Join(i.ConfDir, o), "{}")
			}
			if _, err := i.WriteConflist(conflist(t, network())); err != nil {
				t.Fatal(err)
			}
			rival, err := i.Rival()
			if err != nil || rival != "" && filepath.Base(rival) != c.rival || rival == "" && c.rival != "" {
				t.Errorf("rival %q, %v, want %q", rival, err, c.rival)
			}
			if got := names(t, i.ConfDir); len(got) != len(c.others)+1 {
				t.Errorf("folder holds %v", got)
			}
		})
	}
}

// TestR051NeverTwoOfOurs turns the option to sort first on and off.
func TestR051NeverTwoOfOurs(t *testing.T) {
	i := installation(t)
	for _, first := range []bool{false, true, true, false} {
		i.First = first
		n := network()
		if first {
			n.MTU = 1400 // the content changes along with the name
		}
		if _, err := i.WriteConflist(conflist(t, n)); err != nil {
			t.Fatal(err)
		}
		want := node.ConflistName
		if first {
			want = node.ConflistFirstName
		}
		if got := names(t, i.ConfDir); !slices.Equal(got, []string{want}) {
			t.Fatalf("folder holds %v, want %s alone", got, want)
		}
		if got, err := os.ReadFile(filepath.Join(i.ConfDir, want)); err != nil || string(got) != string(conflist(t, n)) {
			t.Errorf("content %s, %v", got, err)
		}
	}
}

func TestPodCIDRsComeBackFromTheConflist(t *testing.T) {
	i := installation(t)
	if got, err := i.PodCIDRs(); err != nil || got != nil {
		t.Errorf("nothing installed: %v, %v", got, err)
	}
	if _, err := i.WriteConflist(conflist(t, network())); err != nil {
		t.Fatal(err)
	}
	i.First = true // an agent restarted with another option still finds it
	if got, err := i.PodCIDRs(); err != nil || !slices.Equal(got, network().PodCIDRs) {
		t.Errorf("%v, %v", got, err)
	}
	put(t, filepath.Join(i.ConfDir, node.ConflistName), "{ half")
	if _, err := i.PodCIDRs(); err == nil {
		t.Error("a damaged conflist is no error")
	}
}

func TestLoopbackOfTheRuntimeStays(t *testing.T) {
	i := installation(t)
	put(t, filepath.Join(i.BinDir, node.Loopback), "theirs")
	if _, err := i.WriteBinaries(); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(i.BinDir, node.Loopback)); err != nil || string(got) != "theirs" {
		t.Errorf("the runtime's loopback became %q, %v", got, err)
	}
}

func TestRemovalLeavesOthersAlone(t *testing.T) {
	i := installation(t)
	put(t, filepath.Join(i.ConfDir, "99-other.conflist"), "{}")
	put(t, filepath.Join(i.BinDir, "bridge"), "theirs")
	if _, err := i.WriteBinaries(); err != nil {
		t.Fatal(err)
	}
	if _, err := i.WriteConflist(conflist(t, network())); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time is a no-op
		if err := i.RemoveConflist(); err != nil {
			t.Fatal(err)
		}
		if err := i.RemoveBinaries(); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(t, i.ConfDir); !slices.Equal(got, []string{"99-other.conflist"}) {
		t.Errorf("configurations left: %v", got)
	}
	if got := names(t, i.BinDir); !slices.Equal(got, []string{"bandwidth", "bridge", "loopback", "portmap"}) {
		t.Errorf("programs left: %v", got)
	}
	if err := os.Remove(filepath.Join(i.ConfDir, "99-other.conflist")); err != nil {
		t.Fatal(err)
	}
	if err := i.RemoveBinaries(); err != nil {
		t.Fatal(err)
	}
	if got := names(t, i.BinDir); !slices.Equal(got, []string{"bridge", "loopback"}) {
		t.Errorf("programs left: %v", got)
	}
}
