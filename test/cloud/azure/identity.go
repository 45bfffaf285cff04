package azure

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/vpcroute/vpcroute/test/cloud"
)

// Token is one that the API takes for an hour, without asking for it.
func (e *Emulator) Token() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.issue()
}

// Revoke makes every token that was given out so far worthless.
func (e *Emulator) Revoke() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.tokens)
}

// SetIdentity gives machines a managed identity, or takes it away.
func (e *Emulator) SetIdentity(there bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.identity = there
}

const tokenLifetime = time.Hour

func (e *Emulator) issue() string {
	token := fmt.Sprintf("emulated.token.%d", e.number())
	e.tokens[token] = time.Now().Add(tokenLifetime) // judged by the real time: a test steps the frame's
	return token
}

func (e *Emulator) authentic(r *http.Request) bool {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	end, known := e.tokens[token]
	return ok && known && time.Now().Before(end)
}

// audiences are the names by which tokens for the resource manager are asked
// for.
var audiences = []string{"https://management.core.windows.net", "https://management.azure.com"}

// serveTokens answers what is not the resource manager's; it returns false for
// the rest.
func (e *Emulator) serveTokens(w http.ResponseWriter, r *http.Request) bool {
	var answer func() (status int, body map[string]any)
	tenant := "/" + e.options.Tenant
	switch r.URL.Path {
	case "/msi/token": // what IDENTITY_ENDPOINT leads to
		answer = func() (int, map[string]any) {
			return e.managed(r, r.Header.Get("X-Identity-Header") == e.options.IdentityHeader)
		}
	case "/metadata/identity/oauth2/token":
		answer = func() (int, map[string]any) { return e.managed(r, r.Header.Get("Metadata") == "true") }
	case "/common/discovery/instance":
		answer = func() (int, map[string]any) {
			return http.StatusOK, map[string]any{
				"tenant_discovery_endpoint": base(r) + tenant + "/v2.0/.well-known/openid-configuration",
				"metadata":                  []any{map[string]any{"preferred_network": r.Host, "preferred_cache": r.Host, "aliases": []string{r.Host}}},
			}
		}
	case tenant + "/v2.0/.well-known/openid-configuration":
		answer = func() (int, map[string]any) {
			at := base(r) + tenant
			return http.StatusOK, map[string]any{"authorization_endpoint": at + "/oauth2/v2.0/authorize", "token_endpoint": at + "/oauth2/v2.0/token", "issuer": at + "/v2.0"}
		}
	case tenant + "/oauth2/v2.0/token":
		answer = func() (int, map[string]any) { return e.application(r) }
	default:
		return false
	}
	if err := r.ParseForm(); err != nil {
		return true
	}
	var status int
	var body map[string]any
	call := cloud.Call{Operation: GetToken, Detail: r.Method + " " + r.URL.Path, Client: r.UserAgent()}
	e.Handle(w, r, call, func() cloud.Answer {
		e.mu.Lock()
		defer e.mu.Unlock()
		status, body = answer()
		text, _ := body["error"].(string)
		return cloud.Answer{Status: status, Code: text, Body: body}
	})
	return true
}

// managed answers for the managed identity of a machine or an app.
func (e *Emulator) managed(r *http.Request, asked bool) (int, map[string]any) {
	switch {
	case !asked:
		return http.StatusUnauthorized, map[string]any{"error": "unauthorized"}
	case !e.identity:
		return http.StatusBadRequest, map[string]any{"error": "invalid_request", "error_description": "Identity not found"}
	case !slices.Contains(audiences, strings.TrimSuffix(r.Form.Get("resource"), "/")):
		return http.StatusBadRequest, map[string]any{"error": "invalid_resource", "error_description": "resource " + r.Form.Get("resource")}
	}
	end := time.Now().Add(tokenLifetime)
	return http.StatusOK, map[string]any{
		"access_token": e.issue(), "token_type": "Bearer", "resource": r.Form.Get("resource"),
		"expires_on": fmt.Sprint(end.Unix()), "expires_in": fmt.Sprint(int(tokenLifetime.Seconds())),
	}
}

// application answers for an application with a secret, or with a federated
// token, of which any but the empty one is taken.
func (e *Emulator) application(r *http.Request) (int, map[string]any) {
	scope := strings.TrimSuffix(strings.Fields(r.Form.Get("scope") + " ")[0], "/.default")
	secret := r.Form.Get("client_secret") == e.options.ClientSecret
	assertion := r.Form.Get("client_assertion") != ""
	switch {
	case r.Form.Get("grant_type") != "client_credentials" || r.Form.Get("client_id") != e.options.ClientID || !secret && !assertion:
		return http.StatusUnauthorized, map[string]any{"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided."}
	case !slices.Contains(audiences, strings.TrimSuffix(scope, "/")):
		return http.StatusBadRequest, map[string]any{"error": "invalid_scope", "error_description": "AADSTS70011: scope " + scope}
	}
	return http.StatusOK, map[string]any{"access_token": e.issue(), "token_type": "Bearer", "expires_in": int(tokenLifetime.Seconds())}
}

// forToken is true for a call that is not the resource manager's.
func forToken(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, "/token") || strings.HasSuffix(r.URL.Path, "/openid-configuration") || r.URL.Path == "/common/discovery/instance"
}

// tokenBody is the JSON of an answer for a token, which spells errors unlike the
// resource manager.
func tokenBody(w http.ResponseWriter, a cloud.Answer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.Status)
	_ = json.NewEncoder(w).Encode(a.Body)
}
