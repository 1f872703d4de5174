package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	holderLife    = 365 * 24 * time.Hour // of a certificate that is not an authority's
	// clockSkew is what the clocks of two nodes may be apart.
	clockSkew = 10 * time.Minute
)

// The names of what Init makes: NAME.pem with a certificate and NAME.key with its key.
const (
	authority  = "ca"
	server     = "server"
	node       = "node"
	controller = "controller"
)

// Init makes what is missing in the folder of an authority of our own (ca) and of the certificates that it signs: that of
// the core (server, for the host names and addresses), of the nodes' agents (node) and of controllers (controller). It
// returns the paths of the files that it made, and overwrites none: to renew a certificate, remove it and its key first.
//
// Keys are ECDSA on P-256, readable by their owner only. An authority lives for ten years, the others for one.
func Init(folder string, hosts []string, now time.Time) (made []string, err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	missing, signed := make(map[string]bool), 0
	for _, name := range []string{authority, server, node, controller} {
		if missing[name], err = isMissing(filepath.Join(folder, name)); err != nil {
			return nil, err
		}
		if name != authority && !missing[name] {
			signed++
		}
	}
	path := filepath.Join(folder, authority)
	if missing[authority] && signed > 0 {
		return nil, fmt.Errorf("%s.pem: missing, beside certificates that it signed; put it back, or give another folder", path)
	}
	if missing[authority] {
		if err := issue(path, template(authority, nil, now), nil); err != nil {
			return nil, err
		}
		made = append(made, path+".key", path+".pem")
	}
	for _, name := range []string{server, node, controller} {
		if !missing[name] {
			continue
		}
		signer, err := readSigner(path, now)
		if err != nil {
			return made, err
		}
		path := filepath.Join(folder, name)
		if err := issue(path, template(name, hosts, now), signer); err != nil {
			return made, err
		}
		made = append(made, path+".key", path+".pem")
	}
	return made, nil
}

// isMissing says whether neither certificate nor key is there. One without the other is an error, but for the key of an
// authority, which may be kept elsewhere.
func isMissing(path string) (bool, error) {
	_, cert := os.Lstat(path + ".pem")
	_, key := os.Lstat(path + ".key")
	noCert, noKey := errors.Is(cert, fs.ErrNotExist), errors.Is(key, fs.ErrNotExist)
	switch {
	case cert != nil && !noCert:
		return false, cert
	case key != nil && !noKey:
		return false, key
	case noCert && !noKey:
		return false, fmt.Errorf("%s.pem: missing, and %s.key is there; remove the key to have both made anew", path, path)
	case noKey && !noCert && filepath.Base(path) != authority:
		return false, fmt.Errorf("%s.key: missing, and %s.pem is there; remove the certificate to have both made anew", path, path)
	}
	return noCert, nil
}

// template is a certificate of the name but for its key.
func template(name string, hosts []string, now time.Time) *x509.Certificate {
	t := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"evenstep"}, CommonName: name},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(holderLife),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
	switch name {
	case authority:
		t.NotAfter = now.Add(authorityLife)
		t.IsCA, t.MaxPathLenZero, t.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	case server:
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		for _, host := range hosts {
			if ip := net.ParseIP(host); ip != nil {
				t.IPAddresses = append(t.IPAddresses, ip)
			} else {
				t.DNSNames = append(t.DNSNames, host)
			}
		}
	default:
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		t.Subject.OrganizationalUnit = []string{map[string]string{node: NodeUnit, controller: ControllerUnit}[name]}
	}
	return t
}

// issue makes a key and the certificate for it, signed by the signer or, without one, by itself. The key is written first:
// a certificate that is there has one.
func issue(path string, t *x509.Certificate, signer *tls.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	parent, by := t, any(key)
	if signer != nil {
		parent, by = signer.Leaf, signer.PrivateKey
		if t.NotAfter.After(parent.NotAfter) {
			t.NotAfter = parent.NotAfter
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, by)
	if err != nil {
		return err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := write(path+".key", 0o600, &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}); err != nil {
		return err
	}
	return write(path+".pem", 0o644, &pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// write makes a file that is not there yet.
func write(path string, mode os.FileMode, block *pem.Block) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	return errors.Join(pem.Encode(f, block), f.Sync(), f.Close())
}

// readSigner reads the authority, which must be able to sign.
func readSigner(path string, now time.Time) (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(path+".pem", path+".key")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s.key: missing, and needed to sign; put it back", path)
	case err != nil:
		return nil, fmt.Errorf("%s.pem, %s.key: %w", path, path, err)
	case !c.Leaf.IsCA:
		return nil, fmt.Errorf("%s.pem: not an authority's certificate; give another folder", path)
	case now.After(c.Leaf.NotAfter):
		return nil, fmt.Errorf("%s.pem: expired on %s; make a new authority in another folder", path,
			c.Leaf.NotAfter.Format(time.DateOnly))
	}
	return &c, nil
}
