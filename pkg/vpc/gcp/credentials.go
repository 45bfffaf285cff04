package gcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	compute "google.golang.org/api/compute/v1"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// tokens are the access tokens of one source of credentials. The SDK renews
// them in time; forget makes it look for the source anew, since a mounted file
// is replaced in place.
type tokens struct {
	file   string
	client *http.Client // asks for tokens

	mu    sync.Mutex
	found *auth.Credentials
}

func (t *tokens) get(ctx context.Context) (string, error) {
	found, err := t.find()
	if err != nil {
		return "", &vpc.Error{Class: vpc.Denied, Op: "credentials", Err: err}
	}
	token, err := found.Token(ctx)
	if err != nil {
		return "", tokenError(err)
	}
	return token.Value, nil
}

func (t *tokens) find() (*auth.Credentials, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.found != nil {
		return t.found, nil
	}
	// Renewal in the background would outlive the calls it is for.
	options := &credentials.DetectOptions{Scopes: []string{compute.ComputeScope}, Client: t.client, DisableAsyncRefresh: true}
	found, err := detect(t.file, options)
	if err == nil {
		t.found = found
	}
	return found, err
}

func (t *tokens) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.found = nil
}

func detect(file string, options *credentials.DetectOptions) (*auth.Credentials, error) {
	if file == "" {
		return credentials.DetectDefault(options)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var form struct{ Type credentials.CredType }
	if err := json.Unmarshal(content, &form); err != nil {
		return nil, fmt.Errorf("%s: not in one of Google's JSON forms", file) // its text may be a secret
	}
	found, err := credentials.NewCredentialsFromJSON(form.Type, content, options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return found, nil
}

// An authorizer puts a token into every request.
type authorizer struct {
	next   http.RoundTripper
	tokens *tokens
}

func (a authorizer) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := a.tokens.get(r.Context())
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return a.next.RoundTrip(r)
}
