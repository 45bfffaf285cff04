package aws

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// clockSkew is how far a request's time may be off.
const clockSkew = 5 * time.Minute

const (
	algorithm  = "AWS4-HMAC-SHA256"
	timeFormat = "20060102T150405Z"
)

// authenticate checks a request's signature, version 4.
func (e *Emulator) authenticate(r *http.Request, body []byte) *problem {
	fields, ok := parseAuthorization(r.Header.Get("Authorization"))
	if !ok {
		return problemf("MissingAuthenticationToken", "Request is missing Authentication Token")
	}
	at, err := time.Parse(timeFormat, r.Header.Get("X-Amz-Date"))
	if err != nil {
		return problemf("IncompleteSignature", "X-Amz-Date: %v", err)
	}
	if d := e.timeOfDay().Sub(at); d > clockSkew || d < -clockSkew {
		return problemf("RequestExpired", "Request has expired.")
	}
	id, scope, _ := strings.Cut(fields["Credential"], "/")
	signed := strings.Split(fields["SignedHeaders"], ";")
	switch {
	case scope != at.Format("20060102")+"/"+e.options.Region+"/ec2/aws4_request":
		return problemf("SignatureDoesNotMatch", "Credential should be scoped to a valid region.")
	case id != e.options.AccessKeyID, r.Header.Get("X-Amz-Security-Token") != e.options.Token:
		return problemf("AuthFailure", "AWS was not able to validate the provided access credentials")
	case !slices.Contains(signed, "host"), !slices.Contains(signed, "x-amz-date"):
		return problemf("IncompleteSignature", "host and x-amz-date have to be signed")
	case !hmac.Equal([]byte(fields["Signature"]), []byte(sign(r, e.options.SecretAccessKey, scope, signed, at, body))):
		return problemf("SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
	}
	return nil
}

// parseAuthorization reads "AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…,
// Signature=…".
func parseAuthorization(s string) (fields map[string]string, ok bool) {
	rest, ok := strings.CutPrefix(s, algorithm+" ")
	fields = map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		fields[name] = value
	}
	return fields, ok
}

func sign(r *http.Request, secret, scope string, signed []string, at time.Time, body []byte) string {
	var headers strings.Builder
	for _, name := range signed {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = r.Header.Get("Content-Length")
			if value == "" {
				value = strconv.Itoa(len(body))
			}
		}
		headers.WriteString(name + ":" + strings.Join(strings.Fields(value), " ") + "\n")
	}
	request := strings.Join([]string{r.Method, "/", r.URL.RawQuery, headers.String(), strings.Join(signed, ";"), digest(body)}, "\n")
	text := strings.Join([]string{algorithm, at.Format(timeFormat), scope, digest([]byte(request))}, "\n")
	key := []byte("AWS4" + secret)
	for part := range strings.SplitSeq(scope, "/") {
		key = mac(key, part)
	}
	return hex.EncodeToString(mac(key, text))
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
