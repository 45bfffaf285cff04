package aws_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/aws"
)

func TestConfigProblems(t *testing.T) {
	tests := []struct {
		name   string
		change func(c *aws.Config)
		want   []string // all of them in one error; none for a good configuration
	}{
		{"good", func(*aws.Config) {}, nil},
		{"IPv6 alone", func(c *aws.Config) { c.ClusterCIDRs = []netip.Prefix{clusterCIDR6} }, nil},
		{"many at once", func(c *aws.Config) {
			c.Account, c.VpcID, c.Tables, c.Owner, c.ClusterCIDRs = aws.StaticAccount("", "a", "b", ""), "", nil, "a b", nil
		}, []string{"region: missing", "VPC id: missing", `cluster id "a b"`, "cluster CIDR: missing"}},
		{"no account", func(c *aws.Config) { c.Account = nil }, []string{"account: missing"}},
		{"host bits", func(c *aws.Config) { c.ClusterCIDRs = []netip.Prefix{prefix("10.244.0.1/16")} }, []string{"10.244.0.1/16: not a range"}},
		{"ids and a tag", func(c *aws.Config) { c.TableTag = "a=b" }, []string{"tables are named already"}},
		{"half a tag", func(c *aws.Config) { c.Tables, c.TableTag = nil, "a=" }, []string{`want "key=value"`}},
		{"not an id", func(c *aws.Config) { c.Tables = []string{"main"} }, []string{`table "main": want an id`}},
		{"unknown check", func(c *aws.Config) { c.Check = "on" }, []string{`check "on": want "switch-off" or "report"`}},
		{"negative numbers", func(c *aws.Config) { c.WritesPerSecond, c.RoutesPerTable = -1, -1 }, []string{"writes per second -1", "routes per table -1"}},
		{"endpoint without a scheme", func(c *aws.Config) { c.Endpoint = "ec2.example.com" }, []string{`endpoint "ec2.example.com": want a URL`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld()
			tt.change(&w.config)
			_, err := aws.New(t.Context(), w.config)
			if (len(tt.want) == 0) != (err == nil) {
				t.Fatalf("New: %v", err)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("New: %v\nlacks %q", err, part)
				}
			}
			if len(tt.want) > 0 && len(w.Calls()) > 0 {
				t.Error("the API was called with a bad configuration")
			}
		})
	}
}

// Keys have no printable form, wherever the account is.
func TestAccountHidesItsKeys(t *testing.T) {
	c := newWorld().config
	c.Account = aws.StaticAccount("eu-central-1", "the-id", "the-secret", "the-token")
	encoded, err := json.Marshal(c.Account)
	if err != nil {
		t.Fatal(err)
	}
	c.Transport = nil
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s", c, c, c, c.Account), fmt.Sprintf("%v %+v", &c, *c.Account), string(encoded)} {
		if strings.Contains(text, "the-secret") || strings.Contains(text, "the-token") {
			t.Errorf("printed: %s", text)
		}
	}
}

// No credentials anywhere, wrong ones and another region's are refusals, and the
// text names no key.
func TestCredentialsThatDoNotWork(t *testing.T) {
	for name, account := range map[string]func(t *testing.T) *aws.Account{
		"none": func(t *testing.T) *aws.Account {
			for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} {
				t.Setenv(name, "")
			}
			t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
			t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
			t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
			a, err := aws.OpenAccount(t.Context(), aws.AccountOptions{Region: "eu-central-1"})
			if err != nil {
				t.Fatal(err)
			}
			return a
		},
		"a wrong secret": func(*testing.T) *aws.Account {
			return aws.StaticAccount("eu-central-1", "AKIAVPCROUTE0EXAMPLE", "wrong-secret", "")
		},
		"an unknown id": func(*testing.T) *aws.Account {
			return aws.StaticAccount("eu-central-1", "AKIAUNKNOWN", "wrong-secret", "")
		},
		"a token too many": func(*testing.T) *aws.Account {
			return aws.StaticAccount("eu-central-1", "AKIAVPCROUTE0EXAMPLE", "vpcroute0example0secret", "wrong-secret")
		},
		"another region": func(*testing.T) *aws.Account {
			return aws.StaticAccount("us-east-1", "AKIAVPCROUTE0EXAMPLE", "vpcroute0example0secret", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.config.Account = account(t)
			_, err := aws.New(t.Context(), w.config)
			if err == nil || vpc.ClassOf(err) != vpc.Denied || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v: %v", vpc.ClassOf(err), err)
			}
		})
	}
}

func TestUnknownProfile(t *testing.T) {
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	if _, err := aws.OpenAccount(t.Context(), aws.AccountOptions{Profile: "nobody"}); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("%v, want the profile's name", err)
	}
}
