package cluster

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"path/filepath"
	"time"
)

const adminToken = "admin"

// auditPolicy records each request of a service account when it is answered, so
// that a test can compare what an account did with what it may do.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
`

// files are the API server's inputs.
type files struct {
	certificates                                                  []byte
	certificate, key, accountKey, tokens, auditPolicy, auditTrail string
}

func (f *files) flags() []string {
	return []string{
		"--tls-cert-file=" + f.certificate,
		"--tls-private-key-file=" + f.key,
		"--service-account-key-file=" + f.accountKey,
		"--service-account-signing-key-file=" + f.accountKey,
		"--token-auth-file=" + f.tokens,
		"--audit-policy-file=" + f.auditPolicy,
		"--audit-log-path=" + f.auditTrail,
		"--audit-log-mode=blocking",
	}
}

func (c *Cluster) writeFiles() (*files, error) {
	key, accountKey := generateKey(), generateKey()
	certificate, err := selfSigned(key, c.where.Address.AsSlice())
	if err != nil {
		return nil, err
	}
	f := &files{certificates: certificate, auditTrail: c.auditTrail()}
	for _, file := range []struct {
		name    string
		content []byte
		path    *string
	}{
		{"apiserver.crt", certificate, &f.certificate},
		{"apiserver.key", encodeKey(key), &f.key},
		{"accounts.key", encodeKey(accountKey), &f.accountKey},
		{"tokens.csv", []byte(adminToken + `,admin,1,"system:masters"` + "\n"), &f.tokens},
		{"audit.yaml", []byte(auditPolicy), &f.auditPolicy},
	} {
		if *file.path, err = c.writeFile(file.name, file.content); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (c *Cluster) auditTrail() string { return filepath.Join(c.dir, "audit.log") }

func generateKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return key
}

// selfSigned makes a certificate that is its own authority, valid for an
// address and for the test's day.
func selfSigned(key *ecdsa.PrivateKey, address net.IP) ([]byte, error) {
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		IPAddresses:           []net.IP{address},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return encode("CERTIFICATE", der), nil
}

func encodeKey(key *ecdsa.PrivateKey) []byte {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		panic(err) // only for unknown curves
	}
	return encode("EC PRIVATE KEY", der)
}

func encode(kind string, der []byte) []byte {
	var b bytes.Buffer
	_ = pem.Encode(&b, &pem.Block{Type: kind, Bytes: der}) // a Buffer takes everything
	return b.Bytes()
}
