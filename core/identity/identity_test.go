package identity

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"testing"

	"google.golang.org/grpc/metadata"
	"pgregory.net/rapid"
)

func TestWhoCalls(t *testing.T) {
	subject := func(unit, name string) *x509.Certificate {
		n := pkix.Name{CommonName: name}
		if unit != "" {
			n.OrganizationalUnit = []string{unit}
		}
		c := &x509.Certificate{}
		c.Subject.FillFromRDNSequence(new(n.ToRDNSequence()))
		return c
	}
	for name, c := range map[string]struct {
		certificate *x509.Certificate
		uids        []string
		want        Caller
		refused     bool
	}{
		"a node for a user":                      {subject(NodeUnit, "n"), []string{"1000"}, Caller{"uid 1000", false}, false},
		"a node for root":                        {subject(NodeUnit, "n"), []string{"0"}, Caller{"uid 0", true}, false},
		"a node for nobody":                      {subject(NodeUnit, "n"), nil, Caller{}, true},
		"a node for two":                         {subject(NodeUnit, "n"), []string{"0", "1000"}, Caller{}, true},
		"a node for a name":                      {subject(NodeUnit, "n"), []string{"root"}, Caller{}, true},
		"a node for a number with a zero before": {subject(NodeUnit, "n"), []string{"01000"}, Caller{}, true},
		"a node for a number with a sign":        {subject(NodeUnit, "n"), []string{"+0"}, Caller{}, true},
		"a node for more than 32 bits":           {subject(NodeUnit, "n"), []string{"4294967296"}, Caller{}, true},
		"a controller":                           {subject(ControllerUnit, "c"), nil, Caller{"CN=c,OU=evenstep-controller", true}, false},
		"a controller that says it is a user":    {subject(ControllerUnit, "c"), []string{"7"}, Caller{"CN=c,OU=evenstep-controller", true}, false},
		"a user who says to be root":             {subject("", "bob"), []string{"0"}, Caller{"CN=bob", false}, false},
		"a unit like a node's":                   {subject("evenstep-nodes", "bob"), []string{"0"}, Caller{"CN=bob,OU=evenstep-nodes", false}, false},
		"nobody":                                 {&x509.Certificate{}, nil, Caller{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := metadata.NewIncomingContext(t.Context(), metadata.MD{userKey: c.uids})
			got, err := Certified(ctx, c.certificate)
			if (err != nil) != c.refused || err == nil && got != c.want {
				t.Errorf("got %+v, %v, want %+v", got, err, c.want)
			}
		})
	}
}

func TestANodeSaysNothingButForWhom(t *testing.T) {
	in := metadata.NewIncomingContext(t.Context(), metadata.Pairs(userKey, "0", "other", "x"))
	m, _ := metadata.FromOutgoingContext(OnBehalfOf(in, 1000))
	if len(m) != 1 || len(m.Get(userKey)) != 1 || m.Get(userKey)[0] != "1000" {
		t.Errorf("got %v", m)
	}
	already := metadata.NewOutgoingContext(context.Background(), metadata.Pairs(userKey, "0"))
	m, _ = metadata.FromOutgoingContext(OnBehalfOf(already, 1000))
	if len(m.Get(userKey)) != 1 {
		t.Errorf("got %v", m)
	}
}

func TestAUserIdComesThrough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Uint32().Draw(t, "id")
		m, _ := metadata.FromOutgoingContext(OnBehalfOf(context.Background(), id))
		got, err := userOf(metadata.NewIncomingContext(context.Background(), m))
		if err != nil || got != id {
			t.Fatalf("got %d, %v, want %d", got, err, id)
		}
	})
}

// A text is a user id only if it is how that id is written.
func FuzzUser(f *testing.F) {
	for _, s := range []string{"0", "1000", "01", "-1", "4294967295", "4294967296", "1e3", " 1", "\u0661"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := parseUser(text)
		if err == nil && User(id) != "uid "+text {
			t.Errorf("%q is %d", text, id)
		}
	})
}
