package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// The names of the sources of credentials.
const (
	FromAnywhere         = "auto"              // the SDK's default chain: the following in order, then developer tools
	FromEnvironment      = "environment"       // AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET or _CERTIFICATE_PATH
	FromWorkloadIdentity = "workload-identity" // AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_FEDERATED_TOKEN_FILE
	FromManagedIdentity  = "managed-identity"  // the identity bound to the machine
	FromCloudFile        = "cloud-config"      // a file azure.json of cloud-provider-azure
)

// CredentialOptions say where to look for credentials.
type CredentialOptions struct {
	// Source is one of the names above; empty means FromAnywhere. FromAnywhere
	// prefers a File that names an identity.
	Source string
	// ClientID names the user-assigned identity of FromManagedIdentity or
	// FromWorkloadIdentity; empty leaves it to the machine or the environment.
	ClientID string
	// File is what FromCloudFile reads.
	File *CloudFile
	// Endpoint is the cloud whose tokens are wanted. Its Transport carries the
	// requests for tokens too.
	Endpoint Endpoint
}

// Sources lists the names of the sources.
func Sources() []string {
	return []string{FromAnywhere, FromEnvironment, FromWorkloadIdentity, FromManagedIdentity, FromCloudFile}
}

// FindCredential returns the named source of tokens. Nothing is asked yet, so an
// identity that is not there is noticed at the first call.
func FindCredential(o CredentialOptions) (azcore.TokenCredential, error) {
	source := cmp.Or(o.Source, FromAnywhere)
	if source == FromAnywhere && o.File != nil && o.File.hasCredential() {
		source = FromCloudFile
	}
	from, err := o.open(source)
	if err != nil {
		return nil, vpc.Errorf(vpc.Denied, "credentials from %s: %w", source, err)
	}
	return &tokens{source: source, from: from}, nil
}

// options are the SDK's, with its retries off.
func (o CredentialOptions) options() azcore.ClientOptions {
	c := azcore.ClientOptions{Cloud: o.Endpoint.configuration(), Retry: policy.RetryOptions{MaxRetries: -1}}
	if o.Endpoint.Transport != nil {
		c.Transport = &http.Client{Transport: o.Endpoint.Transport}
	}
	return c
}

func (o CredentialOptions) open(source string) (azcore.TokenCredential, error) {
	switch source {
	case FromAnywhere:
		return azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: o.options()})
	case FromEnvironment:
		return azidentity.NewEnvironmentCredential(&azidentity.EnvironmentCredentialOptions{ClientOptions: o.options()})
	case FromWorkloadIdentity:
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{ClientOptions: o.options(), ClientID: o.ClientID})
	case FromManagedIdentity:
		return o.managedIdentity(o.ClientID)
	case FromCloudFile:
		if o.File == nil {
			return nil, errors.New("no file is given")
		}
		return o.fromFile(*o.File)
	default:
		return nil, fmt.Errorf("unknown source: want one of %s", strings.Join(Sources(), ", "))
	}
}

func (o CredentialOptions) managedIdentity(client string) (azcore.TokenCredential, error) {
	m := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: o.options()}
	if client != "" {
		m.ID = azidentity.ClientID(client)
	}
	return azidentity.NewManagedIdentityCredential(m)
}

// fromFile follows the order of cloud-provider-azure: federated token, managed
// identity, client secret.
func (o CredentialOptions) fromFile(f CloudFile) (azcore.TokenCredential, error) {
	switch {
	case f.UseFederatedWorkloadIdentityExtension:
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions: o.options(), ClientID: f.AADClientID, TenantID: f.TenantID, TokenFilePath: f.AADFederatedTokenFile,
		})
	case f.UseManagedIdentityExtension:
		return o.managedIdentity(f.UserAssignedIdentityID)
	case f.AADClientID != "" && f.AADClientSecret.text != nil:
		return azidentity.NewClientSecretCredential(f.TenantID, f.AADClientID, *f.AADClientSecret.text, &azidentity.ClientSecretCredentialOptions{ClientOptions: o.options()})
	default:
		return nil, fmt.Errorf("%s names none: want useFederatedWorkloadIdentityExtension, useManagedIdentityExtension, or aadClientId and aadClientSecret", f.path)
	}
}

// NoCredential is a source that has no tokens.
type NoCredential struct{}

// GetToken fails.
func (NoCredential) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{}, vpc.Errorf(vpc.Denied, "no credentials are set up")
}

// A Secret is a text that is never printed: every format of it, JSON included,
// gives "[secret]". It is behind a pointer because fmt does not ask the methods
// of unexported fields, and prints pointers inside of them as numbers.
type Secret struct{ text *string }

const secretText = "[secret]"

// Format prints the same whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(secretText)) }

// MarshalText hides the secret from encoders.
func (Secret) MarshalText() ([]byte, error) { return []byte(secretText), nil }

// UnmarshalText takes the secret.
func (s *Secret) UnmarshalText(text []byte) error {
	if len(text) > 0 {
		t := string(text)
		s.text = &t
	}
	return nil
}

// A CloudFile is what is used of the file azure.json that cloud-provider-azure
// reads; names are those of its fields.
type CloudFile struct {
	Cloud          string `json:"cloud"`
	TenantID       string `json:"tenantId"`
	SubscriptionID string `json:"subscriptionId"`
	// ResourceGroup is the machines' group.
	ResourceGroup string `json:"resourceGroup"`
	// RouteTableName and RouteTableResourceGroup name the table; the group is
	// ResourceGroup when empty.
	RouteTableName          string `json:"routeTableName"`
	RouteTableResourceGroup string `json:"routeTableResourceGroup"`

	AADClientID                           string `json:"aadClientId"`
	AADClientSecret                       Secret `json:"aadClientSecret"`
	UseManagedIdentityExtension           bool   `json:"useManagedIdentityExtension"`
	UserAssignedIdentityID                string `json:"userAssignedIdentityID"`
	UseFederatedWorkloadIdentityExtension bool   `json:"useFederatedWorkloadIdentityExtension"`
	AADFederatedTokenFile                 string `json:"aadFederatedTokenFile"`

	path string
}

// ReadCloudFile reads a file azure.json.
func ReadCloudFile(path string) (*CloudFile, error) {
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return nil, fmt.Errorf("cloud config: %w", err)
	}
	f := &CloudFile{path: path}
	if err := json.Unmarshal(text, f); err != nil {
		return nil, fmt.Errorf("cloud config %s: not the JSON of cloud-provider-azure", path) // the cause may hold a secret
	}
	return f, nil
}

func (f *CloudFile) hasCredential() bool {
	return f.UseFederatedWorkloadIdentityExtension || f.UseManagedIdentityExtension || f.AADClientSecret.text != nil
}

// FindCloud returns the SDK's description of a cloud by the name that Azure's
// tools use; empty means the public one.
func FindCloud(name string) (cloud.Configuration, error) {
	switch strings.ToLower(name) {
	case "", "azurecloud", "azurepubliccloud":
		return cloud.AzurePublic, nil
	case "azureusgovernment", "azureusgovernmentcloud":
		return cloud.AzureGovernment, nil
	case "azurechinacloud":
		return cloud.AzureChina, nil
	default:
		return cloud.Configuration{}, fmt.Errorf("cloud %q: want AzurePublicCloud, AzureUSGovernmentCloud or AzureChinaCloud", name)
	}
}

// tokens is a source of tokens whose failures are short and have a class.
type tokens struct {
	source string
	from   azcore.TokenCredential
}

// String says where the tokens come from.
func (t *tokens) String() string { return t.source }

var blank = regexp.MustCompile(`\s+`)

// GetToken asks the source.
func (t *tokens) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := t.from.GetToken(ctx, o)
	if err == nil {
		return token, nil
	}
	if ctx.Err() != nil {
		return token, ctx.Err()
	}
	e := &vpc.Error{Class: vpc.Denied, Op: "get a token from " + t.source}
	text := err.Error()
	var failed *azidentity.AuthenticationFailedError
	var network net.Error
	switch {
	case errors.As(err, &failed) && failed.RawResponse != nil:
		status := failed.RawResponse.StatusCode
		if status == http.StatusTooManyRequests || status >= 500 {
			e.Class = classOf("", status)
		}
		e.RetryAfter = retryAfter(failed.RawResponse.Header)
		text = fmt.Sprintf("HTTP %d: %s", status, describeRefusal(failed.RawResponse))
	case errors.As(err, &network):
		e.Class = vpc.Transient
	}
	e.Err = errors.New(cut(blank.ReplaceAllString(text, " "), 600))
	return token, e
}

// describeRefusal reads the answer of a token endpoint (RFC 6749, section 5.2).
func describeRefusal(r *http.Response) string {
	var refusal struct {
		Error, Description string
		Text               string `json:"error_description"`
	}
	body, err := runtime.Payload(r)
	if err != nil || json.Unmarshal(body, &refusal) != nil || refusal.Error == "" {
		return cut(string(body), 80)
	}
	return refusal.Error + ": " + cut(refusal.Text, 300)
}
