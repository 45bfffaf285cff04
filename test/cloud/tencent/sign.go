package tencent

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// clockSkew is how far a request's time may be off.
const clockSkew = 5 * time.Minute

// A key is a temporary key pair.
type key struct {
	secret, token string
	expires       time.Time
}

// authenticate checks a request's TC3-HMAC-SHA256 signature.
func (e *Emulator) authenticate(r *http.Request, service string, body []byte) *problem {
	credential, signature, ok := parseAuthorization(r.Header.Get("Authorization"))
	if !ok {
		return problemf("AuthFailure.InvalidAuthorization", "the Authorization header is not well-formed")
	}
	seconds, err := strconv.ParseInt(r.Header.Get("X-TC-Timestamp"), 10, 64)
	if err != nil {
		return problemf("AuthFailure.InvalidAuthorization", "X-TC-Timestamp: %v", err)
	}
	at, now := time.Unix(seconds, 0).UTC(), e.timeOfDay()
	if d := now.Sub(at); d > clockSkew || d < -clockSkew {
		return problemf("AuthFailure.SignatureExpire", "the request's time is %s off", d.Round(time.Second))
	}
	id, scope, _ := strings.Cut(credential, "/")
	if want := at.Format(time.DateOnly) + "/" + service + "/tc3_request"; scope != want {
		return problemf("AuthFailure.SignatureFailure", "the credential's scope is %q, want %q", scope, want)
	}
	k, known := e.keys[id]
	if id == e.options.SecretID {
		k, known = key{secret: e.options.SecretKey}, true
	}
	switch {
	case !known:
		return problemf("AuthFailure.SecretIdNotFound", "the SecretId is not found")
	case k.token != r.Header.Get("X-TC-Token"):
		return problemf("AuthFailure.TokenFailure", "the token is not valid")
	case !k.expires.IsZero() && now.After(k.expires):
		return problemf("AuthFailure.TokenFailure", "the token has expired")
	case !hmac.Equal([]byte(signature), []byte(sign(r, k.secret, scope, at, body))):
		return problemf("AuthFailure.SignatureFailure", "the provided credentials could not be validated")
	}
	return nil
}

// parseAuthorization reads "TC3-HMAC-SHA256 Credential=…, SignedHeaders=…,
// Signature=…"; the signed headers must be the two that the SDK signs.
func parseAuthorization(s string) (credential, signature string, ok bool) {
	rest, ok := strings.CutPrefix(s, "TC3-HMAC-SHA256 ")
	if !ok {
		return "", "", false
	}
	fields := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[name] = value
	}
	credential, signature = fields["Credential"], fields["Signature"]
	return credential, signature, credential != "" && signature != "" && fields["SignedHeaders"] == "content-type;host"
}

func sign(r *http.Request, secret, scope string, at time.Time, body []byte) string {
	request := strings.Join([]string{
		r.Method, "/", r.URL.RawQuery,
		"content-type:" + r.Header.Get("Content-Type"),
		"host:" + r.Host,
		"", "content-type;host", digest(body),
	}, "\n")
	text := fmt.Sprintf("TC3-HMAC-SHA256\n%d\n%s\n%s", at.Unix(), scope, digest([]byte(request)))
	k := []byte("TC3" + secret)
	for part := range strings.SplitSeq(scope, "/") {
		k = mac(k, part)
	}
	return hex.EncodeToString(mac(k, text))
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func mac(k []byte, text string) []byte {
	h := hmac.New(sha256.New, k)
	h.Write([]byte(text))
	return h.Sum(nil)
}
