package tencent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	tchttp "github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/common/http"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// The names of the sources of credentials.
const (
	FromAnywhere    = "auto"         // the first of those below that is there
	FromEnvironment = "environment"  // TENCENTCLOUD_SECRET_ID, _SECRET_KEY, _TOKEN
	FromFile        = "file"         // TENCENTCLOUD_CREDENTIALS_FILE or ~/.tencentcloud/credentials
	FromPodIdentity = "pod-identity" // TKE_REGION, TKE_PROVIDER_ID, TKE_ROLE_ARN, TKE_WEB_IDENTITY_TOKEN_FILE
	FromCVMRole     = "cvm-role"     // the role bound to the machine
)

// DefaultMetadataURL is the metadata service that a machine of Tencent Cloud has.
const DefaultMetadataURL = "http://metadata.tencentyun.com"

const (
	// fileLifetime is how long keys from a file are used before it is read
	// again: a mounted secret is replaced in place.
	fileLifetime = time.Minute
	// renewEarly is how long before their end temporary keys are renewed.
	renewEarly = 5 * time.Minute
	// metadataTimeout bounds one request to the metadata service.
	metadataTimeout = 3 * time.Second
	// assumedSeconds is how long the keys of an assumed role are asked to last.
	assumedSeconds = 7200
)

// CredentialOptions say where to look for credentials.
type CredentialOptions struct {
	// Source is one of the names above; empty means FromAnywhere.
	Source string
	// Getenv reads the environment, as os.Getenv does.
	Getenv func(string) string
	// MetadataURL is the metadata service; empty means DefaultMetadataURL.
	MetadataURL string
	// Role is the machine's role; empty asks the metadata service for its name.
	Role string
	// Endpoint is where pod identity assumes its role.
	Endpoint Endpoint
}

// FindCredentials returns the named source, or the first that is there, in the
// order of the names above. The CVM role is taken without asking for it, so a
// machine without one is noticed at the first call.
func FindCredentials(o CredentialOptions) (Credentials, error) {
	finders := []struct {
		name string
		find func(CredentialOptions) (Credentials, error)
	}{
		{FromEnvironment, fromEnvironment},
		{FromFile, fromFile},
		{FromPodIdentity, fromPodIdentity},
		{FromCVMRole, fromCVMRole},
	}
	names := []string{FromAnywhere}
	for _, f := range finders {
		names = append(names, f.name)
		if o.Source == f.name || o.Source == "" || o.Source == FromAnywhere {
			c, err := f.find(o)
			if c != nil || err != nil {
				return c, err
			}
			if o.Source == f.name {
				return nil, denied("credentials: there are none in %q: see the page on Tencent Cloud for what it needs", f.name)
			}
		}
	}
	return nil, vpc.Errorf(vpc.Invalid, "credentials: source %q: want one of %s", o.Source, strings.Join(names, ", "))
}

func fromEnvironment(o CredentialOptions) (Credentials, error) {
	id, key := o.Getenv("TENCENTCLOUD_SECRET_ID"), o.Getenv("TENCENTCLOUD_SECRET_KEY")
	switch {
	case id == "" && key == "":
		return nil, nil
	case id == "":
		return nil, denied("credentials: TENCENTCLOUD_SECRET_KEY is set, but TENCENTCLOUD_SECRET_ID is not")
	case key == "":
		return nil, denied("credentials: TENCENTCLOUD_SECRET_ID is set, but TENCENTCLOUD_SECRET_KEY is not")
	}
	return static{"the environment", Keys{ID: id, Key: NewSecret(key), Token: NewSecret(o.Getenv("TENCENTCLOUD_TOKEN"))}}, nil
}

// A file is a credentials file in the SDK's form: "secret_id = …" and
// "secret_key = …" in a section [default].
type file string

func fromFile(o CredentialOptions) (Credentials, error) {
	path := o.Getenv("TENCENTCLOUD_CREDENTIALS_FILE")
	named := path != ""
	if home := o.Getenv("HOME"); !named && home != "" {
		path = filepath.Join(home, ".tencentcloud", "credentials")
	}
	if path == "" {
		return nil, nil
	}
	_, err := file(path).read()
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	if err != nil {
		return nil, denied("credentials: %w", err)
	}
	return file(path), nil
}

func (f file) String() string { return "file " + string(f) }

func (f file) Keys(context.Context) (Keys, error) {
	keys, err := f.read()
	if err != nil {
		return Keys{}, denied("%w", err)
	}
	keys.Renew = time.Now().Add(fileLifetime)
	return keys, nil
}

func (f file) read() (Keys, error) {
	content, err := os.ReadFile(string(f))
	if err != nil {
		return Keys{}, err
	}
	values, section := map[string]string{}, ""
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimSuffix(name, "]")
		} else if name, value, ok := strings.Cut(line, "="); ok && section == "default" {
			values[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	keys := Keys{ID: values["secret_id"], Key: NewSecret(values["secret_key"])}
	if keys.ID == "" || keys.Key.reveal() == "" {
		return Keys{}, fmt.Errorf("%s: no secret_id and secret_key in section [default]", string(f))
	}
	return keys, nil
}

// A cvmRole is the role bound to this machine.
type cvmRole struct {
	url, role string
	client    *http.Client
}

func fromCVMRole(o CredentialOptions) (Credentials, error) {
	base := o.MetadataURL
	if base == "" {
		base = DefaultMetadataURL
	}
	// No proxy: the metadata service answers this machine alone.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	return &cvmRole{
		url:    strings.TrimSuffix(base, "/") + "/latest/meta-data/cam/security-credentials/",
		role:   o.Role,
		client: &http.Client{Timeout: metadataTimeout, Transport: transport},
	}, nil
}

func (r *cvmRole) String() string {
	if r.role == "" {
		return "the machine's role"
	}
	return "the machine's role " + r.role
}

func (r *cvmRole) Keys(ctx context.Context) (Keys, error) {
	role := r.role
	if role == "" {
		name, err := r.get(ctx, "")
		if err != nil {
			return Keys{}, err
		}
		role = strings.TrimSpace(string(name))
	}
	content, err := r.get(ctx, role)
	if err != nil {
		return Keys{}, err
	}
	var a struct {
		TmpSecretID  string `json:"TmpSecretId"`
		TmpSecretKey string
		Token        string
		ExpiredTime  int64
		Code         string
	}
	if err := json.Unmarshal(content, &a); err != nil {
		return Keys{}, fmt.Errorf("role %s: the metadata service's answer is not understood", role)
	}
	if a.Code != "Success" || a.TmpSecretID == "" || a.TmpSecretKey == "" {
		return Keys{}, denied("role %s: the metadata service gives no keys (code %q)", role, a.Code)
	}
	return temporary(a.TmpSecretID, a.TmpSecretKey, a.Token, a.ExpiredTime), nil
}

func (r *cvmRole) get(ctx context.Context, name string) ([]byte, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+name, nil)
	if err != nil {
		return nil, err
	}
	a, err := r.client.Do(q)
	if err != nil {
		return nil, fmt.Errorf("no metadata service (is this a machine of Tencent Cloud?): %w", err)
	}
	defer a.Body.Close()
	content, err := io.ReadAll(io.LimitReader(a.Body, 1<<16))
	switch {
	case a.StatusCode == http.StatusNotFound:
		return nil, denied("no such role is bound to this machine: bind a CAM role to it, or set TENCENTCLOUD_SECRET_ID and TENCENTCLOUD_SECRET_KEY")
	case a.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the metadata service answers HTTP %d", a.StatusCode)
	}
	return content, err
}

// temporary are keys that end; they are renewed a little earlier, or at half of
// their time when that is short.
func temporary(id, key, token string, expires int64) Keys {
	end := time.Unix(expires, 0)
	return Keys{
		ID: id, Key: NewSecret(key), Token: NewSecret(token),
		Renew:   end.Add(-min(renewEarly, time.Until(end)/2)),
		Expires: end,
	}
}

// A podIdentity is a role that a pod of the container service may assume.
type podIdentity struct {
	region, provider, role, tokenFile string
	endpoint                          Endpoint
}

func fromPodIdentity(o CredentialOptions) (Credentials, error) {
	names := []string{"TKE_REGION", "TKE_PROVIDER_ID", "TKE_ROLE_ARN", "TKE_WEB_IDENTITY_TOKEN_FILE"}
	values, missing := make([]string, len(names)), []string{}
	for i, name := range names {
		if values[i] = o.Getenv(name); values[i] == "" {
			missing = append(missing, name)
		}
	}
	switch {
	// TKE_REGION alone says nothing about an identity.
	case !slices.ContainsFunc(values[1:], func(v string) bool { return v != "" }):
		return nil, nil
	case len(missing) > 0:
		return nil, denied("credentials: pod identity is set up in part: %s missing", strings.Join(missing, ", "))
	}
	return &podIdentity{values[0], values[1], values[2], values[3], o.Endpoint}, nil
}

func (p *podIdentity) String() string { return "pod identity " + p.role }

type assumeRoleRequest struct {
	*tchttp.BaseRequest
	ProviderID       string `json:"ProviderId"`
	WebIdentityToken string
	RoleArn          string
	RoleSessionName  string
	DurationSeconds  int64
}

type assumeRoleResponse struct {
	tchttp.BaseResponse
	Response struct {
		Credentials struct {
			Token        string
			TmpSecretID  string `json:"TmpSecretId"`
			TmpSecretKey string
		}
		ExpiredTime int64
	}
}

// Keys reads the pod's token anew each time, since it is replaced in place, and
// asks in the pod's own region (the SDK's provider asks in Guangzhou).
func (p *podIdentity) Keys(ctx context.Context) (Keys, error) {
	token, err := os.ReadFile(p.tokenFile)
	if err != nil {
		return Keys{}, denied("%w", err)
	}
	q := &assumeRoleRequest{
		BaseRequest: newRequest("sts", "2018-08-13", "AssumeRoleWithWebIdentity"), ProviderID: p.provider,
		WebIdentityToken: strings.TrimSpace(string(token)), RoleArn: p.role, RoleSessionName: "vpcroute", DurationSeconds: assumedSeconds,
	}
	q.SetSkipSign(true)
	q.SetContext(ctx)
	var a assumeRoleResponse
	if err := newServiceClient(p.endpoint, p.region).Send(q, &a); err != nil {
		return Keys{}, classify("sts", "AssumeRoleWithWebIdentity", err)
	}
	c := a.Response.Credentials
	return temporary(c.TmpSecretID, c.TmpSecretKey, c.Token, a.Response.ExpiredTime), nil
}
