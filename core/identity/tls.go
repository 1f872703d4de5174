package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"
)

// Files are the PEM files that one end of mutual TLS needs: its certificate and key, and the authorities that sign those of
// the other end. The zero value is none.
type Files struct{ Certificate, Key, Authorities string }

// Given says whether any file was named.
func (f Files) Given() bool { return f != Files{} }

// Server is what a core asks of its clients. The errors name the flags that the files come from.
func (f Files) Server() (*tls.Config, error) {
	certificate, authorities, err := f.read()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{certificate},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    authorities,
	}, nil
}

// Client is what a client shows to a core, and asks of it: that its certificate is for the name in its address.
func (f Files) Client() (*tls.Config, error) {
	certificate, authorities, err := f.read()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{certificate},
		RootCAs:      authorities,
	}, nil
}

// Valid is from when until when the certificate is.
func (f Files) Valid() (from, until time.Time, err error) {
	certificate, _, err := f.read()
	if err != nil {
		return from, until, err
	}
	return certificate.Leaf.NotBefore, certificate.Leaf.NotAfter, nil
}

func (f Files) read() (certificate tls.Certificate, authorities *x509.CertPool, err error) {
	if f.Certificate == "" || f.Key == "" || f.Authorities == "" {
		return certificate, nil, errors.New("--tls-cert, --tls-key, --tls-ca: one is missing; give all three")
	}
	if certificate, err = tls.LoadX509KeyPair(f.Certificate, f.Key); err != nil {
		return certificate, nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	pem, err := os.ReadFile(f.Authorities)
	if err != nil {
		return certificate, nil, fmt.Errorf("--tls-ca: %w", err)
	}
	authorities = x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return certificate, nil, fmt.Errorf("--tls-ca: %s holds no PEM certificate", f.Authorities)
	}
	return certificate, authorities, nil
}
