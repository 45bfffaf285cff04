package main

import (
	"bytes"
	"encoding/pem"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// rootsPath is where Go programs look for the certificates of the authorities
// they trust (crypto/x509/root_linux.go).
const rootsPath = "etc/ssl/certs/ca-certificates.crt"

// rootsModule holds Mozilla's list of authorities.
const rootsModule = "golang.org/x/crypto/x509roots/fallback"

// roots are the authorities of Mozilla's list. One that is trusted only under
// conditions is left out: a file of certificates cannot say them.
func roots() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a Buffer takes everything
		}
	}
	return out.Bytes()
}

func (o options) rootsLicense() (file, error) {
	texts, err := o.licenses(program{"images", rootsModule + "/bundle", ""}, platform{"linux", "amd64"})
	for _, f := range texts {
		if err == nil && f.name == licensesPath+"/"+rootsModule+"/LICENSE" {
			return f, nil
		}
	}
	return file{}, err
}
