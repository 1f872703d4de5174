// Package identity says who is at the other end of a connection to a shared core, and makes the certificates that prove
// it.
//
// Users never hold a key. A node's agent knows a caller's user id from the kernel and passes it on beside each call; the
// core believes it from nobody but a certificate whose organizational unit says that it is a node's. A controller's speaks
// for itself, and for all.
package identity

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/grpc/metadata"
)

// Organizational units of certificates, by which the core knows what their holders may do.
const (
	NodeUnit       = "evenstep-node"       // adds the user id of whom it calls for
	ControllerUnit = "evenstep-controller" // sees the jobs of all, and registers jobs for users
)

// userKey is where a node puts the user id, in decimal, among the metadata of a call.
const userKey = "evenstep-uid"

// Caller is who calls.
type Caller struct {
	// Owner is whose the jobs are that it opens; empty for whoever the core's own socket lets in.
	Owner string
	// Operator says that it sees the jobs of all, and registers jobs for others.
	Operator bool
}

// User is the owner of the jobs of a user id.
func User(id uint32) string { return "uid " + strconv.FormatUint(uint64(id), 10) }

// Certified is who calls with a certificate, one that an authority of the core's signed. A node calls for the user whose id
// it adds, and root there is an operator; what others add counts for nothing.
func Certified(ctx context.Context, c *x509.Certificate) (Caller, error) {
	switch {
	case slices.Contains(c.Subject.OrganizationalUnit, NodeUnit):
		id, err := userOf(ctx)
		return Caller{User(id), id == 0}, err
	case len(c.Subject.Names) == 0:
		return Caller{}, fmt.Errorf("no subject in the client's certificate; its jobs need an owner")
	}
	return Caller{c.Subject.String(), slices.Contains(c.Subject.OrganizationalUnit, ControllerUnit)}, nil
}

func userOf(ctx context.Context) (uint32, error) {
	m, _ := metadata.FromIncomingContext(ctx)
	values := m.Get(userKey)
	if len(values) != 1 {
		return 0, fmt.Errorf("%s: %d of them beside a node's call; its agent adds one", userKey, len(values))
	}
	return parseUser(values[0])
}

// parseUser takes nothing but what OnBehalfOf writes.
func parseUser(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil || strconv.FormatUint(id, 10) != text {
		return 0, fmt.Errorf("%s: %.20q is not a user id in decimal", userKey, text)
	}
	return uint32(id), nil
}

// OnBehalfOf is a context for a node's calls for the user. Of the metadata that ctx came in with, nothing goes on.
func OnBehalfOf(ctx context.Context, id uint32) context.Context {
	return metadata.NewOutgoingContext(ctx, metadata.Pairs(userKey, strconv.FormatUint(uint64(id), 10)))
}
