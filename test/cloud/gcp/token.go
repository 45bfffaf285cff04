package gcp

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

const account = "controller@shop-prod-1.iam.gserviceaccount.com"

// accountKey is the service account's key. One for all emulators of a process:
// making it takes a while.
var accountKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// Key returns the service account's key file for an emulator at url.
func Key(url string) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(accountKey())
	if err != nil {
		panic(err)
	}
	content, err := json.Marshal(map[string]string{
		"type":           "service_account",
		"project_id":     "shop-prod-1",
		"private_key_id": "1",
		"private_key":    string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"client_email":   account,
		"token_uri":      url + "/token",
	})
	if err != nil {
		panic(err)
	}
	return content
}

// Revoke makes every token that was given out so far worthless.
func (e *Emulator) Revoke() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.tokens)
}

// serveToken gives an access token for a signed assertion (RFC 7523).
func (e *Emulator) serveToken(w http.ResponseWriter, r *http.Request) {
	refuse := func(code, why string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": why})
	}
	if grant := r.FormValue("grant_type"); grant != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
		refuse("unsupported_grant_type", grant)
		return
	}
	if err := checkAssertion(r.FormValue("assertion")); err != nil {
		refuse("invalid_grant", err.Error())
		return
	}
	e.mu.Lock()
	token := fmt.Sprintf("ya29.token-%d", e.number())
	e.tokens[token] = time.Now().Add(e.options.TokenLifetime)
	e.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": int(e.options.TokenLifetime.Seconds())})
}

// checkAssertion says what is wrong with a signed assertion.
func checkAssertion(text string) error {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return fmt.Errorf("not a JWT")
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return err
	}
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err := rsa.VerifyPKCS1v15(&accountKey().PublicKey, crypto.SHA256, digest[:], signature); err != nil {
		return fmt.Errorf("invalid JWT signature")
	}
	content, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return err
	}
	var claims struct {
		Iss, Scope, Aud string
		Exp, Iat        int64
	}
	if err := json.Unmarshal(content, &claims); err != nil {
		return err
	}
	now := time.Now().Unix()
	switch {
	case claims.Iss != account:
		return fmt.Errorf("no account %q", claims.Iss)
	case !strings.HasSuffix(claims.Aud, "/token"):
		return fmt.Errorf("audience %q", claims.Aud)
	case claims.Scope == "":
		return fmt.Errorf("no scope")
	case claims.Exp < now || claims.Iat > now+60:
		return fmt.Errorf("the assertion is not of this time")
	}
	return nil
}

func (e *Emulator) authenticate(r *http.Request) *problem {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if expires, known := e.tokens[token]; !ok || !known || time.Now().After(expires) {
		return problemf("authError", "Request had invalid authentication credentials. Expected OAuth 2 access token")
	}
	return nil
}
