package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// configured reads a configuration file and then flags.
func configured(t *testing.T, text string, flags ...string) (*options, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := given(t, append(flags, "--config", file)...)
	return o, errors.Join(o.readConfig()...)
}

// given reads flags.
func given(t *testing.T, flags ...string) *options {
	t.Helper()
	o := &options{}
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.bind(f)
	if err := f.Parse(flags); err != nil {
		t.Fatal(err)
	}
	return o
}

const configHead = "apiVersion: config.vpcroute.io/v1alpha1\nkind: RouteControllerConfiguration\n"

func TestConfigFileSetsFlags(t *testing.T) {
	o, err := configured(t, configHead+"vpc: linux\nclusterCIDR: [10.244.0.0/16, 'fd00::/48']\nmaxDeletes: 7\nqps: 2.5\nadopt: true\nlinuxTable: 100\nclusterID: file\n", "--cluster-id", "flag")
	if err != nil {
		t.Fatal(err)
	}
	if o.vpc != "linux" || strings.Join(o.clusterCIDRs, " ") != "10.244.0.0/16 fd00::/48" || o.maxDeletes != 7 || o.qps != 2.5 || !o.adopt || o.linux.Table != 100 {
		t.Errorf("%+v", o)
	}
	if o.clusterID != "flag" {
		t.Errorf("cluster id is %q: a flag that is given counts more", o.clusterID)
	}
}

func TestConfigFileTellsAllThatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"everything": {"apiVersion: v1\nkind: ConfigMap\nclusterCidrs: x\nmaxDeletes: many\nconfig: y\n", []string{"apiVersion is v1: want config.vpcroute.io/v1alpha1", "kind is ConfigMap", `"clusterCidrs"`, "maxDeletes is many", `"config"`}},
		"empty":      {"", []string{"apiVersion", "kind"}},
		"twice":      {configHead + "vpc: linux\nvpc: linux\n", []string{"vpc"}},
		"no YAML":    {"a: b: c", []string{"yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := configured(t, c.text)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not name %q", err, want)
				}
			}
		})
	}
}

// TestOverlayConfigs reads the configuration in every cloud's overlay: its fields
// are flags, and its cloud is the one that the overlay is named after.
func TestOverlayConfigs(t *testing.T) {
	files, err := filepath.Glob("../../manifests/overlays/*/config.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no overlays: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		o, err := configured(t, string(text))
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		name := filepath.Base(filepath.Dir(file))
		if !strings.HasPrefix(name, o.vpc) || o.vpc != "linux" && o.clouds[o.vpc] == nil || o.clusterID == "" || len(o.clusterCIDRs) == 0 {
			t.Errorf("%s: cloud %q, cluster %q, ranges %v", file, o.vpc, o.clusterID, o.clusterCIDRs)
		}
	}
}

func TestVerification(t *testing.T) {
	for verify, ok := range map[string]bool{"": true, "probe": true, "off": true, "settle=30s": true, "settle": false, "settle=-1s": false, "x": false} {
		s, err := (&options{verify: verify, agentPort: 1}).settings(t.Context(), noNodes)
		told := err != nil && strings.Contains(err.Error(), "--verify")
		if told == ok {
			t.Errorf("--verify=%s: %v", verify, err)
		}
		if wantProbe := verify == "probe"; (s.config.Prover != nil) != wantProbe {
			t.Errorf("--verify=%s: prover %v", verify, s.config.Prover)
		}
	}
}
