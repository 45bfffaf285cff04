package tencent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// metadataPath is where a machine reads its own metadata.
const metadataPath = "/latest/meta-data/"

const roleLifetime = 2 * time.Hour

// SetRole gives the machine that asks the metadata service a role, or none.
func (e *Emulator) SetRole(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.role = name
}

// Revoke makes every temporary key that was given out so far worthless.
func (e *Emulator) Revoke() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.keys)
}

// issue makes a temporary key pair and returns its secret id.
func (e *Emulator) issue() (id string, k key) {
	n := e.number()
	id = fmt.Sprintf("AKIDtemporary%d", n)
	k = key{secret: fmt.Sprintf("secret%d", n), token: fmt.Sprintf("token%d", n), expires: e.timeOfDay().Add(roleLifetime)}
	e.keys[id] = k
	return id, k
}

func (e *Emulator) serveMetadata(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	rest, ok := strings.CutPrefix(r.URL.Path, metadataPath+"cam/security-credentials/")
	switch {
	case !ok || e.role == "" || rest != "" && rest != e.role:
		http.NotFound(w, r)
	case rest == "":
		fmt.Fprint(w, e.role)
	default:
		id, k := e.issue()
		_ = json.NewEncoder(w).Encode(map[string]any{
			"TmpSecretId": id, "TmpSecretKey": k.secret, "Token": k.token, "Code": "Success",
			"ExpiredTime": k.expires.Unix(), "Expiration": k.expires.UTC().Format(time.RFC3339),
		})
	}
}

type assumeRoleRequest struct {
	ProviderId, WebIdentityToken, RoleArn, RoleSessionName string
	DurationSeconds                                        int64
}

// assumeRole takes any web identity token but the empty one.
func (e *Emulator) assumeRole(q assumeRoleRequest) (any, *problem) {
	if q.ProviderId == "" || q.WebIdentityToken == "" || q.RoleArn == "" || q.RoleSessionName == "" {
		return nil, problemf("InvalidParameter.WebIdentityTokenError", "ProviderId, WebIdentityToken, RoleArn and RoleSessionName are needed")
	}
	id, k := e.issue()
	return map[string]any{
		"Credentials": map[string]string{"Token": k.token, "TmpSecretId": id, "TmpSecretKey": k.secret},
		"ExpiredTime": k.expires.Unix(), "Expiration": k.expires.UTC().Format(time.RFC3339),
	}, nil
}
