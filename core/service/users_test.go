package service

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/identity"
	"github.com/evenstep/evenstep/core/placement"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// shared is a core on TCP with mutual TLS, as a cluster has it.
type shared struct {
	t        testing.TB
	balancer *Balancer
	target   string
	folder   string // of certificates
}

func startShared(t testing.TB, policies Policies) *shared {
	t.Helper()
	c := &shared{t: t, folder: t.TempDir(), balancer: NewBalancer("test", policies, hclog.NewNullLogger())}
	if _, err := identity.Init(c.folder, []string{"127.0.0.1"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	config, err := c.files("server").Server()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.target = l.Addr().String()
	s := NewServer(c.balancer, NewPlacer(placement.Place), credentials.NewTLS(config), hclog.NewNullLogger())
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		c.balancer.Stop()
		s.Stop(time.Second)
		if err := <-served; err != nil {
			t.Error("serve:", err)
		}
	})
	return c
}

func (c *shared) files(name string) identity.Files {
	path := filepath.Join(c.folder, name)
	return identity.Files{Certificate: path + ".pem", Key: path + ".key", Authorities: filepath.Join(c.folder, "ca.pem")}
}

// dial connects with one of the certificates.
func (c *shared) dial(certificate string) *grpc.ClientConn {
	c.t.Helper()
	config, err := c.files(certificate).Client()
	if err != nil {
		c.t.Fatal(err)
	}
	return c.dialWith(config)
}

func (c *shared) dialWith(config *tls.Config) *grpc.ClientConn {
	c.t.Helper()
	conn, err := grpc.NewClient(c.target, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	return conn
}

// other is a client whose certificate the same authority signed, and that is neither a node's nor a controller's.
func (c *shared) other() *tls.Config {
	c.t.Helper()
	config, err := c.files("node").Client()
	if err != nil {
		c.t.Fatal(err)
	}
	ca, err := tls.LoadX509KeyPair(filepath.Join(c.folder, "ca.pem"), filepath.Join(c.folder, "ca.key"))
	if err != nil {
		c.t.Fatal(err)
	}
	key := config.Certificates[0].PrivateKey.(*ecdsa.PrivateKey)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{Subject: pkix.Name{CommonName: "other"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca.Leaf, &key.PublicKey, ca.PrivateKey)
	if err != nil {
		c.t.Fatal(err)
	}
	config.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	return config
}

// caller is a client, and what it says of itself beside each call.
type caller struct {
	t    testing.TB
	conn *grpc.ClientConn
	ctx  context.Context
}

// user calls through a node.
func (c *shared) user(node *grpc.ClientConn, id uint32) *caller {
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Minute)
	c.t.Cleanup(cancel)
	return &caller{c.t, node, identity.OnBehalfOf(ctx, id)}
}

func (c *caller) open(job string) (*client, error) {
	c.t.Helper()
	return c.openAs(&evenstepv1.Open{Job: job, GlobalBatch: 8, Workers: []*evenstepv1.Worker{{}, {}}})
}

func (c *caller) openAs(o *evenstepv1.Open) (*client, error) {
	c.t.Helper()
	s, err := evenstepv1.NewBalancerClient(c.conn).Balance(c.ctx)
	if err != nil {
		return nil, err
	}
	_ = s.Send(&evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: o}})
	_, err = s.Recv()
	return &client{c.t, s, nil}, err
}

func (c *caller) mustOpen(job string) *client {
	c.t.Helper()
	s, err := c.open(job)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// list is what the caller sees, as owner/job.
func (c *caller) list() (seen []string) {
	c.t.Helper()
	for _, j := range c.statuses() {
		seen = append(seen, j.GetOwner()+"/"+j.GetJob())
	}
	return seen
}

func (c *caller) statuses() (all []*evenstepv1.JobStatus) {
	c.t.Helper()
	s, err := evenstepv1.NewJobsClient(c.conn).List(c.ctx, &evenstepv1.ListRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	for {
		j, err := s.Recv()
		if err == io.EOF {
			return all
		}
		if err != nil {
			c.t.Fatal(err)
		}
		all = append(all, j)
	}
}

func (c *caller) register(job string, id uint32) error {
	_, err := evenstepv1.NewJobsClient(c.conn).Register(c.ctx, &evenstepv1.RegisterRequest{Job: job, Uid: id})
	return err
}

// reports sends a step and wants the answer to it.
func (c *client) reports(step uint64) {
	c.t.Helper()
	c.send(request(&evenstepv1.StepReport{Step: step, NextFreeStep: step + 1,
		Workers: []*evenstepv1.WorkerReport{{Rank: 0}, {Rank: 1}}}))
	if r, err := c.Recv(); err != nil || r.GetAllocation().GetAnswersStep() != step {
		c.t.Fatalf("got %v, %v, want the answer to step %d", r, err, step)
	}
}

func TestAUserNeitherReadsNorSteersNorEndsAnothersJob(t *testing.T) {
	core := startShared(t, testPolicies)
	node := core.dial("node")
	a, b, root := core.user(node, 1001), core.user(node, 1002), core.user(node, 0)
	controller := &caller{t, core.dial("controller"), t.Context()}
	mine := a.mustOpen("job")
	theirs := b.mustOpen("job")
	// Were it one job, the second stream had taken the place of the first, and a step below an answered one got no answer.
	mine.reports(7)
	theirs.reports(5)
	mine.reports(8)
	theirs.reports(6)
	controllers := controller.mustOpen("job")
	all := []string{"CN=controller,OU=evenstep-controller,O=evenstep/job", "uid 1001/job", "uid 1002/job"}
	for name, c := range map[string]struct {
		who  *caller
		want []string
	}{
		"a user":       {a, []string{"uid 1001/job"}},
		"another":      {b, []string{"uid 1002/job"}},
		"a third":      {core.user(node, 1003), nil},
		"root":         {root, all},
		"a controller": {controller, all},
	} {
		if got := c.who.list(); !slices.Equal(got, c.want) {
			t.Errorf("%s sees %q, want %q", name, got, c.want)
		}
	}
	// Whoever ends theirs ends nothing of mine.
	_ = theirs.CloseSend()
	if _, err := theirs.Recv(); err != io.EOF {
		t.Error(err)
	}
	_ = controllers.CloseSend()
	mine.reports(9)
}

func TestMetadataIsShort(t *testing.T) {
	core := startShared(t, testPolicies)
	node := core.dial("node")
	for _, c := range []struct {
		bytes int
		works bool
	}{{maxHeaderBytes / 2, true}, {maxHeaderBytes, false}} {
		a := core.user(node, 1001)
		a.ctx = metadata.AppendToOutgoingContext(a.ctx, "x", strings.Repeat("v", c.bytes))
		if _, err := a.open("job"); (err == nil) != c.works {
			t.Errorf("%d bytes: %v", c.bytes, err)
		}
	}
}

func TestOnlyANodeSpeaksForUsers(t *testing.T) {
	core := startShared(t, testPolicies)
	node := core.dial("node")
	core.user(node, 1001).mustOpen("job").reports(0)
	// A controller that says to be a user is a controller.
	forged := core.user(core.dial("controller"), 1001)
	forged.mustOpen("job")
	if all := core.user(node, 0).list(); len(all) != 2 {
		t.Errorf("the forged user's job is among %q", all)
	}
	for name, m := range map[string]metadata.MD{
		"nobody": {}, "two": metadata.Pairs("evenstep-uid", "0", "evenstep-uid", "1001"), "a name": metadata.Pairs("evenstep-uid", "root"),
	} {
		c := &caller{t, node, metadata.NewOutgoingContext(t.Context(), m)}
		if _, err := c.open("job"); status.Code(err) != codes.Unauthenticated {
			t.Errorf("a node for %s: got %v", name, err)
		}
		if err := c.register("job", 1); status.Code(err) != codes.Unauthenticated {
			t.Errorf("a node for %s: got %v", name, err)
		}
	}
	// Nor does anybody else, with or without a certificate of another authority's.
	other := startShared(t, testPolicies)
	config, err := other.files("node").Client()
	if err != nil {
		t.Fatal(err)
	}
	config.InsecureSkipVerify = true
	for name, certificates := range map[string][]tls.Certificate{"none": nil, "another authority's": config.Certificates} {
		with := config.Clone()
		with.Certificates = certificates
		if _, err := core.user(core.dialWith(with), 1001).open("job"); status.Code(err) != codes.Unavailable {
			t.Errorf("with %s: got %v", name, err)
		}
	}
}

func TestRootRegistersJobsForOthers(t *testing.T) {
	core := startShared(t, testPolicies)
	node := core.dial("node")
	a, b, root := core.user(node, 1001), core.user(node, 1002), core.user(node, 0)
	early := b.mustOpen("slurm-7")
	for _, c := range []struct {
		name string
		who  *caller
		job  string
		uid  uint32
		want codes.Code
	}{
		{"root", root, "slurm-7", 1001, codes.OK},
		{"root again", root, "slurm-7", 1001, codes.OK},
		{"root, for another", root, "slurm-7", 1002, codes.AlreadyExists},
		{"a user", a, "slurm-8", 1001, codes.PermissionDenied},
		{"a controller", &caller{t, core.dial("controller"), t.Context()}, "slurm-9", 1002, codes.OK},
		{"root, a job without a name", root, "", 1001, codes.InvalidArgument},
		{"root, a name with a space", root, "a b", 1001, codes.InvalidArgument},
		{"root, a name that is no text", root, strings.Repeat("x", 257), 1001, codes.InvalidArgument},
	} {
		if err := c.who.register(c.job, c.uid); status.Code(err) != c.want {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
	early.reports(0) // what was open stays whose it was
	if _, err := b.open("slurm-7"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("another user: got %v", err)
	}
	if got := a.statuses(); len(got) != 1 || got[0].GetWaiting() != "registered; no worker is here" {
		t.Errorf("its user sees %v", got)
	}
	a.mustOpen("slurm-7").reports(0)
	if got := a.statuses(); len(got) != 1 || got[0].GetSteps() != 1 {
		t.Errorf("its user sees %v", got)
	}
	root.mustOpen("slurm-7") // the user's, not one of root's own
	if got := root.list(); !slices.Equal(got, []string{"uid 1001/slurm-7", "uid 1002/slurm-7", "uid 1002/slurm-9"}) {
		t.Errorf("root sees %q", got)
	}
	if _, err := evenstepv1.NewJobsClient(node).Unregister(b.ctx, &evenstepv1.UnregisterRequest{Job: "slurm-7"}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("another user unregisters: %v", err)
	}
	if _, err := evenstepv1.NewJobsClient(node).Unregister(root.ctx, &evenstepv1.UnregisterRequest{Job: "slurm-7"}); err != nil {
		t.Error(err)
	}
	b.mustOpen("slurm-7")
}

func TestAUserHasSoManyJobsWorkersAndStreams(t *testing.T) {
	core := startShared(t, testPolicies)
	node := core.dial("node")
	a, b := core.user(node, 1001), core.user(node, 1002)
	var open []*client
	for i := range userJobs {
		open = append(open, a.mustOpen(fmt.Sprint(i)))
	}
	_, err := a.open("more")
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "256 jobs of this user are open") {
		t.Errorf("a job more: %v", err)
	}
	b.mustOpen("more")
	_ = open[0].CloseSend()
	if _, err := open[0].Recv(); err != io.EOF {
		t.Error(err)
	}
	for _, err = a.open("more"); err != nil; _, err = a.open("more") { // the place is free a moment later
		if status.Code(err) != codes.ResourceExhausted {
			t.Fatal(err)
		}
	}

	u := &user{}
	for _, c := range []struct {
		jobs, workers int
		taken         bool
	}{{1, userWorkers, true}, {1, 1, false}, {0, 1, false}, {1, 0, true}, {-1, -1, true}, {1, 1, true}, {1, 1, false}} {
		if err := u.charge(c.jobs, c.workers); (err == nil) != c.taken {
			t.Errorf("%d jobs, %d workers: %v", c.jobs, c.workers, err)
		}
	}

	few := NewBalancer("test", testPolicies, hclog.NewNullLogger())
	for range userStreams {
		if _, err := few.enter("uid 1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := few.enter("uid 1"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream more: %v", err)
	}
	if _, err := few.enter("uid 2"); err != nil {
		t.Errorf("another's: %v", err)
	}
	for range userStreams + 1 {
		if u, err := few.enter(""); u != nil || err != nil {
			t.Fatalf("the core's own socket: %v", err)
		}
	}
	for range userStreams {
		few.exit(few.users["uid 1"])
	}
	if _, err := few.enter("uid 3"); err != nil || few.users["uid 1"] != nil {
		t.Errorf("who has left is kept (%v)", err)
	}
}

// A user who has sent too much waits; nobody else does.
func TestWhatComesTooFastWaits(t *testing.T) {
	b := NewBalancer("test", testPolicies, hclog.NewNullLogger())
	fast, _ := b.enter("uid 1")
	calm, _ := b.enter("uid 2")
	done, cancel := context.WithCancel(t.Context())
	if err := fast.wait(done, userRate); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := fast.wait(done, userRate); status.Code(err) != codes.Canceled {
		t.Errorf("what is above the rate: %v", err)
	}
	soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := fast.wait(soon, userRate); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("what is above the rate, with a deadline: %v", err)
	}
	if err := calm.wait(t.Context(), userRate); err != nil {
		t.Error(err)
	}
	if costOf(1, 70) != 1 || costOf(64, 0) != 2 || costOf(1, 2048) != 2 || costOf(maxWorkers, maxMessageBytes) > userRate {
		t.Error("costs are not as docs/core.md says")
	}
}

// What is much work for the core counts as much, however small the message is.
func TestWorkCountsNotMessages(t *testing.T) {
	core := startShared(t, testPolicies)
	node := core.dial("node")
	a := core.user(node, 1001)
	spent := func(do func()) float64 {
		core.balancer.mu.Lock()
		u := core.balancer.user("uid 1001")
		core.balancer.mu.Unlock()
		u.messages = rate.NewLimiter(0, userRate) // which nothing fills
		do()
		return userRate - u.messages.Tokens()
	}
	for i := range 6400 {
		core.balancer.registered[fmt.Sprint(i)] = &registration{owner: identity.User(1002)}
	}
	if got := spent(func() { a.list() }); got != openCost+101 {
		t.Errorf("a look through 6,400 jobs counts %v", got)
	}

	// One of many ranks, alone, whose steps are answered once more than are kept are pending.
	rank := uint32(0)
	o := &evenstepv1.Open{Job: "job", GlobalBatch: 640, Rank: &rank, Workers: slices.Repeat([]*evenstepv1.Worker{{}}, 640)}
	var s *client
	report := func(step uint64) {
		s.send(request(&evenstepv1.StepReport{Step: step, NextFreeStep: step + 1, Workers: []*evenstepv1.WorkerReport{{}}}))
	}
	if got := spent(func() {
		var err error
		if s, err = a.openAs(o); err != nil {
			t.Fatal(err)
		}
	}); got != openCost+11 {
		t.Errorf("an open of 640 workers counts %v", got)
	}
	if got := spent(func() {
		for step := range uint64(maxPending + 2) {
			report(step)
		}
		for range 2 {
			if _, err := s.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		report(maxPending + 2) // taken once the one before is paid for
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}); got < maxPending+3+2*11 {
		t.Errorf("%d reports and 2 answers to 640 workers count %v", maxPending+3, got)
	}
}

// What a user reports may be absurd, but what all are shown is numbers.
func TestAbsurdTimesAreShownAsNumbers(t *testing.T) {
	core := startShared(t, testPolicies)
	a := core.user(core.dial("node"), 1001)
	s := a.mustOpen("job")
	for step, seconds := range []float64{mostQuantity, 5e-324} {
		s.send(request(&evenstepv1.StepReport{Step: uint64(step), NextFreeStep: uint64(step) + 1, Workers: []*evenstepv1.WorkerReport{
			{Rank: 0, ComputeSeconds: seconds, WaitSeconds: &seconds, Samples: 1},
			{Rank: 1, ComputeSeconds: seconds, WaitSeconds: &seconds, Samples: 1}}}))
		r, err := s.Recv()
		if err != nil || math.IsInf(r.GetAllocation().GetStepSeconds(), 0) || math.IsNaN(r.GetAllocation().GetStepSeconds()) {
			t.Errorf("%v: got %v, %v", seconds, r, err)
		}
		for _, j := range a.statuses() {
			if j.GetStepSeconds() != 2*seconds || j.GetWaitShare() != 0.5 {
				t.Errorf("%v: a step of %v s, %v of it wait", seconds, j.GetStepSeconds(), j.GetWaitShare())
			}
		}
	}
}

func TestOnlyOperatorsDoWhatIsTheirs(t *testing.T) {
	core := startShared(t, testPolicies)
	user := core.user(core.dial("node"), 1001)
	other := &caller{t, core.dialWith(core.other()), t.Context()}
	controller := &caller{t, core.dial("controller"), t.Context()}
	asks := map[string]func(*caller) error{
		"register": func(c *caller) error { return c.register("j", 1) },
		"unregister": func(c *caller) error {
			_, err := evenstepv1.NewJobsClient(c.conn).Unregister(c.ctx, &evenstepv1.UnregisterRequest{Job: "j"})
			return err
		},
		"rates": func(c *caller) error {
			_, err := evenstepv1.NewProfilesClient(c.conn).Rates(c.ctx, &evenstepv1.RatesRequest{Types: []string{"a"}})
			return err
		},
		"place": func(c *caller) error {
			_, err := evenstepv1.NewPlacerClient(c.conn).Place(c.ctx, twoJobs())
			return err
		},
	}
	for name, ask := range asks {
		for who, c := range map[string]*caller{"a user": user, "another certificate": other} {
			if err := ask(c); status.Code(err) != codes.PermissionDenied {
				t.Errorf("%s asks to %s: %v", who, name, err)
			}
		}
		if err := ask(controller); err != nil {
			t.Errorf("a controller asks to %s: %v", name, err)
		}
	}
	// They are refused before they said what they ask.
	s, err := user.conn.NewStream(user.ctx, &grpc.StreamDesc{ClientStreams: true}, evenstepv1.Placer_Place_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(new(evenstepv1.PlaceResponse)); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
}

func TestStatusSaysWhoWaits(t *testing.T) {
	core := startShared(t, testPolicies)
	a := core.user(core.dial("node"), 1001)
	rank := func(r uint32) *evenstepv1.Open {
		return &evenstepv1.Open{Job: "job", GlobalBatch: 9, Rank: &r, Workload: "w", Workers: []*evenstepv1.Worker{
			{Node: "n1", DeviceType: "v100", Device: "GPU-1"}, {Node: "n2"}, {Node: "n3"}}}
	}
	waits := func(want string) *evenstepv1.JobStatus {
		t.Helper()
		all := a.statuses()
		if len(all) != 1 || all[0].GetWaiting() != want {
			t.Fatalf("got %v, want to wait %q", all, want)
		}
		return all[0]
	}
	first, err := a.openAs(rank(0))
	if err != nil {
		t.Fatal(err)
	}
	waits("for rank 1, which has not come, and 1 more")
	var others []*client
	for _, r := range []uint32{1, 2} {
		s, err := a.openAs(rank(r))
		if err != nil {
			t.Fatal(err)
		}
		others = append(others, s)
	}
	waits("")
	report := func(c *client, r uint32) {
		wait := 0.5 * float64(r)
		c.send(request(&evenstepv1.StepReport{Step: 4, NextFreeStep: 5, Workers: []*evenstepv1.WorkerReport{
			{Rank: r, ComputeSeconds: 2 - wait, Samples: 3, WaitSeconds: &wait}}}))
	}
	report(first, 0)
	report(others[1], 2)
	for deadline := time.Now().Add(10 * time.Second); a.statuses()[0].GetWaiting() != "for rank 1, which has not reported step 4"; {
		if time.Now().After(deadline) {
			t.Fatalf("got %v", a.statuses())
		}
	}
	report(others[0], 1)
	if _, err := first.Recv(); err != nil {
		t.Fatal(err)
	}
	got := waits("")
	if got.GetSteps() != 1 || got.GetResizes() != 1 || got.GetStepSeconds() != 2 || got.GetWaitShare() != 0.25 ||
		got.GetOwner() != "uid 1001" || got.GetWorkload() != "w" || got.GetPolicy() != "auto" || got.GetGlobalBatch() != 9 {
		t.Errorf("got %v", got)
	}
	w := got.GetWorkers()
	if len(w) != 3 || w[0].GetDevice() != "GPU-1" || w[0].GetComputeSeconds() != 2 || w[2].GetWaitSeconds() != 1 || !w[1].GetHere() {
		t.Errorf("got %v", w)
	}
	_ = others[1].CloseSend()
	_, _ = others[1].Recv()
	for deadline := time.Now().Add(10 * time.Second); a.statuses()[0].GetWorkers()[2].GetHere(); {
		if time.Now().After(deadline) {
			t.Fatal("a worker that went away is still here")
		}
	}
}
