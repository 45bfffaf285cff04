package tencent

import (
	"context"
	"fmt"
	"time"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// A Secret is a text that is never printed: every format of it, JSON included,
// gives "[secret]". It is behind a pointer because fmt does not ask the methods
// of unexported fields, and prints pointers inside of them as numbers.
type Secret struct{ text *string }

const secretText = "[secret]"

// NewSecret hides a text.
func NewSecret(text string) Secret { return Secret{&text} }

func (s Secret) reveal() string { return value(s.text) }

// Format prints the same whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(secretText)) }

// MarshalText hides the secret from encoders.
func (Secret) MarshalText() ([]byte, error) { return []byte(secretText), nil }

// Keys are one key pair.
type Keys struct {
	// ID names the key pair; it appears in every request.
	ID string
	// Key signs requests.
	Key Secret
	// Token goes with temporary keys.
	Token Secret
	// Renew is when to ask for newer keys; the zero Time is never.
	Renew time.Time
	// Expires is when the keys stop working; the zero Time is never.
	Expires time.Time
}

// Credentials are a source of keys.
type Credentials interface {
	// Keys returns the keys of this moment.
	Keys(ctx context.Context) (Keys, error)
	// String says where they come from, without any secret.
	String() string
}

// StaticCredentials are keys that never change.
func StaticCredentials(id string, key, token Secret) Credentials {
	return static{"configuration", Keys{ID: id, Key: key, Token: token}}
}

type static struct {
	from string
	keys Keys
}

func (s static) Keys(context.Context) (Keys, error) { return s.keys, nil }
func (s static) String() string                     { return s.from }

// retryKeys is how long keys that still work are used after newer ones could
// not be had, before the source is asked again.
const retryKeys = 30 * time.Second

// A keyring keeps the keys in use and renews them in time. The SDK signs with
// it.
type keyring struct {
	source Credentials
	turn   chan struct{} // holds one token; whoever has it may touch keys
	keys   Keys
	known  bool
}

func newKeyring(source Credentials) *keyring {
	k := &keyring{source: source, turn: make(chan struct{}, 1)}
	k.turn <- struct{}{}
	return k
}

// refresh makes sure that there are keys to sign with.
func (k *keyring) refresh(ctx context.Context) error {
	select {
	case <-k.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { k.turn <- struct{}{} }()
	now := time.Now()
	if k.known && (k.keys.Renew.IsZero() || now.Before(k.keys.Renew)) {
		return nil
	}
	keys, err := k.source.Keys(ctx)
	switch {
	case err == nil:
		k.keys, k.known = keys, true
		return nil
	case k.known && now.Before(k.keys.Expires):
		k.keys.Renew = now.Add(retryKeys)
		return nil
	default:
		return &keysError{k.source.String(), err}
	}
}

// expire makes the next refresh ask the source.
func (k *keyring) expire() {
	<-k.turn
	k.known = false
	k.turn <- struct{}{}
}

// A keysError is a failure to get keys; it keeps its cause's class.
type keysError struct {
	source string
	err    error
}

func (e *keysError) Error() string { return fmt.Sprintf("get keys from %s: %v", e.source, e.err) }
func (e *keysError) Unwrap() error { return e.err }

// GetCredential returns the keys in the form of the SDK.
func (k *keyring) GetCredential() (id, key, token string) {
	<-k.turn
	defer func() { k.turn <- struct{}{} }()
	return k.keys.ID, k.keys.Key.reveal(), k.keys.Token.reveal()
}

// GetSecretId returns the key pair's name.
func (k *keyring) GetSecretId() string { id, _, _ := k.GetCredential(); return id }

// GetSecretKey returns the signing key.
func (k *keyring) GetSecretKey() string { _, key, _ := k.GetCredential(); return key }

// GetToken returns the token of temporary keys.
func (k *keyring) GetToken() string { _, _, token := k.GetCredential(); return token }

func denied(format string, args ...any) error { return vpc.Errorf(vpc.Denied, format, args...) }
