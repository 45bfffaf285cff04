package azure_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/azure"
	"github.com/vpcroute/vpcroute/test/cloud"
	emulated "github.com/vpcroute/vpcroute/test/cloud/azure"
)

// clearIdentity takes everything out of the environment that the SDK's chain
// looks at.
func clearIdentity(t *testing.T) {
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "AZURE_") || strings.HasPrefix(name, "IDENTITY_") || strings.HasPrefix(name, "MSI_") {
			t.Setenv(name, "")
		}
	}
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Every source ends in a token that the API takes: the SDK's own credentials ask
// the emulated token endpoint and metadata service.
func TestCredentials(t *testing.T) {
	o := emulated.Defaults()
	token := writeFile(t, "token", "federated")
	secret := map[string]string{"AZURE_TENANT_ID": o.Tenant, "AZURE_CLIENT_ID": o.ClientID, "AZURE_CLIENT_SECRET": o.ClientSecret}
	federated := map[string]string{"AZURE_TENANT_ID": o.Tenant, "AZURE_CLIENT_ID": o.ClientID, "AZURE_FEDERATED_TOKEN_FILE": token}
	file := func(format string, args ...any) string { return fmt.Sprintf(format, args...) }
	tests := []struct {
		name   string
		source string
		env    map[string]string
		file   string
		setUp  func(w *world)
		fails  string // the source is not there, or gives nothing
	}{
		{name: "environment", source: azure.FromEnvironment, env: secret},
		{name: "environment, found", source: azure.FromAnywhere, env: secret},
		{name: "workload identity", source: azure.FromWorkloadIdentity, env: federated},
		{name: "workload identity, found", env: federated},
		{name: "managed identity", source: azure.FromManagedIdentity},
		{name: "cloud config, secret", file: file(`{"tenantId": %q, "aadClientId": %q, "aadClientSecret": %q}`, o.Tenant, o.ClientID, o.ClientSecret)},
		{name: "cloud config, federated", file: file(`{"tenantId": %q, "aadClientId": %q, "useFederatedWorkloadIdentityExtension": true, "aadFederatedTokenFile": %q}`, o.Tenant, o.ClientID, token)},
		{name: "cloud config, managed identity", source: azure.FromCloudFile, file: `{"useManagedIdentityExtension": true, "userAssignedIdentityID": "of-the-file"}`},
		{name: "cloud config without identity: the chain", file: `{"tenantId": "x"}`, env: secret},
		{name: "cloud config names none", source: azure.FromCloudFile, file: `{}`, fails: "names none"},
		{name: "no cloud config", source: azure.FromCloudFile, fails: "no file is given"},
		{name: "unknown", source: "pigeon", fails: "want one of auto, environment"},
		{name: "nothing in the environment", source: azure.FromEnvironment, fails: "environment"},
		{name: "wrong secret", source: azure.FromEnvironment, env: map[string]string{"AZURE_TENANT_ID": o.Tenant, "AZURE_CLIENT_ID": o.ClientID, "AZURE_CLIENT_SECRET": "wrong-and-secret"}, fails: "AADSTS7000215"},
		{name: "the machine has none", source: azure.FromManagedIdentity, setUp: func(w *world) { w.SetIdentity(false) }, fails: "managed-identity"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			clearIdentity(t)
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			w := newWorld()
			if tt.setUp != nil {
				tt.setUp(w)
			}
			// MSAL keeps the tokens of managed identities for the whole process.
			c := azure.CredentialOptions{Source: tt.source, ClientID: managedID(t, tt.source), Endpoint: azure.Endpoint{Transport: cloud.Direct(w)}}
			if tt.file != "" {
				f, err := azure.ReadCloudFile(writeFile(t, "azure.json", tt.file))
				if err != nil {
					t.Fatal(err)
				}
				c.File = f
			}
			w.Revoke() // the fixture's own
			credential, err := azure.FindCredential(c)
			if err == nil {
				w.config.Credential = credential
				_, err = azure.New(t.Context(), w.config)
			}
			if tt.fails == "" && err != nil {
				t.Errorf("%v\n%v", err, w.Calls())
			}
			if tt.fails != "" && (err == nil || vpc.ClassOf(err) != vpc.Denied || !strings.Contains(err.Error(), tt.fails) || len(err.Error()) > 1000) {
				t.Errorf("%v (%v) lacks %q", err, vpc.ClassOf(err), tt.fails)
			}
			if err != nil && strings.Contains(err.Error(), "wrong-and-secret") {
				t.Errorf("the secret is in the error: %v", err)
			}
		})
	}
}

func managedID(t *testing.T, source string) string {
	if source == azure.FromManagedIdentity {
		return "id of " + t.Name()
	}
	return ""
}

// A token endpoint that is away is not a missing permission.
func TestTokenEndpointIsAway(t *testing.T) {
	clearIdentity(t)
	for name, tt := range map[string]struct {
		fault cloud.Fault
		class vpc.Class
	}{
		"unavailable": {cloud.Fault{Operation: emulated.GetToken, Page: http.StatusServiceUnavailable}, vpc.Transient},
		"throttled":   {cloud.Fault{Operation: emulated.GetToken, Page: http.StatusTooManyRequests}, vpc.Throttled},
		"refused":     {cloud.Fault{Operation: emulated.GetToken, Page: http.StatusForbidden}, vpc.Denied},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.Inject(tt.fault)
			credential, err := azure.FindCredential(azure.CredentialOptions{Source: azure.FromManagedIdentity, ClientID: managedID(t, azure.FromManagedIdentity), Endpoint: azure.Endpoint{Transport: cloud.Direct(w)}})
			if err != nil {
				t.Fatal(err)
			}
			w.config.Credential = credential
			_, err = azure.New(t.Context(), w.config)
			if err == nil || vpc.ClassOf(err) != tt.class {
				t.Errorf("%v (%v), want %v", err, vpc.ClassOf(err), tt.class)
			}
			if n := len(w.Calls(emulated.GetToken)); n != 1 {
				t.Errorf("the token endpoint was asked %d times: retries belong elsewhere", n)
			}
		})
	}
}

// No format prints a secret, also not within what holds it.
func TestSecretsAreNotPrinted(t *testing.T) {
	f, err := azure.ReadCloudFile(writeFile(t, "azure.json", `{"aadClientId": "id", "aadClientSecret": "hush-hush"}`))
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		texts = append(texts, fmt.Sprintf(format, f), fmt.Sprintf(format, *f), fmt.Sprintf(format, f.AADClientSecret))
	}
	raw, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range append(texts, string(raw)) {
		if strings.Contains(text, "hush") || strings.Contains(text, "687573682d68757368") {
			t.Errorf("printed: %s", text)
		}
	}
	if _, err := azure.ReadCloudFile(writeFile(t, "azure.json", `{"aadClientSecret": "hush-hush`)); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("a broken file: %v", err)
	}
}
