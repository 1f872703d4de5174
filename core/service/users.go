package service

import (
	"context"
	"maps"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/core/identity"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// What one user of a shared core may keep open, and send; docs/core.md lists them. These are our choices. Whoever the core's
// own socket lets in is not bounded by them.
const (
	userStreams = 4096
	userJobs    = 256
	userWorkers = 1 << 17 // of all jobs
	userTold    = 1 << 22 // that streams are told of, each of those of its job
	// userRate is what is taken each second, and in a burst: see costOf. What comes faster waits.
	userRate = 10000
	openCost = 10 // of a call, however it goes on
)

// operatorsOnly is what nobody else may do, by method.
var operatorsOnly = map[string]string{
	evenstepv1.Jobs_Register_FullMethodName:   "register jobs for others",
	evenstepv1.Jobs_Unregister_FullMethodName: "register jobs for others",
	evenstepv1.Profiles_Rates_FullMethodName:  "ask how fast workloads run",
	evenstepv1.Placer_Place_FullMethodName:    "place jobs",
}

// user is what is kept of one while they have streams, or sent much just now. All but messages is guarded by the
// Balancer's mutex.
type user struct {
	streams, jobs, workers, told int
	messages                     *rate.Limiter
}

// admitted is a call that was let in, with who makes it.
type admitted struct {
	grpc.ServerStream
	ctx    context.Context // of the stream, with the call in it
	caller identity.Caller
	user   *user // nil for whoever is not bounded
}

type admittedKey struct{}

func (a *admitted) Context() context.Context { return a.ctx }

// callIn is the call that a context is of. One that did not come through the server is an operator's.
func callIn(ctx context.Context) *admitted {
	if a, ok := ctx.Value(admittedKey{}).(*admitted); ok {
		return a
	}
	return &admitted{caller: identity.Caller{Operator: true}}
}

// admit is an interceptor of all calls. Before anything of one is read, it refuses what the caller may not do, counts it
// among their streams, and lets it wait for its turn.
func (b *Balancer) admit(service any, s grpc.ServerStream, i *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	err := b.admitted(service, s, i.FullMethod, handle)
	if err != nil && s.Context().Err() == nil { // else the client ended it
		b.measures.refused.WithLabelValues(status.Code(err).String()).Inc()
	}
	return err
}

func (b *Balancer) admitted(service any, s grpc.ServerStream, method string, handle grpc.StreamHandler) error {
	caller, err := whoCalls(s.Context())
	if err != nil {
		return err
	}
	if what := operatorsOnly[method]; what != "" && !caller.Operator {
		return status.Error(codes.PermissionDenied, "only root and controllers "+what)
	}
	u, err := b.enter(caller.Owner)
	if err != nil {
		return err
	}
	defer b.exit(u)
	if err := u.wait(s.Context(), openCost); err != nil {
		return err
	}
	a := &admitted{ServerStream: s, caller: caller, user: u}
	a.ctx = context.WithValue(s.Context(), admittedKey{}, a)
	return handle(service, a)
}

// whoCalls says who is at the other end. Without TLS that is whoever the socket lets in, an operator.
func whoCalls(ctx context.Context) (identity.Caller, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return identity.Caller{Operator: true}, nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return identity.Caller{Operator: true}, nil
	}
	if len(info.State.PeerCertificates) == 0 {
		return identity.Caller{}, status.Error(codes.Unauthenticated, "no certificate of the client; its jobs need an owner")
	}
	c, err := identity.Certified(ctx, info.State.PeerCertificates[0])
	if err != nil {
		return c, status.Error(codes.Unauthenticated, err.Error())
	}
	return c, nil
}

// user finds or makes what is kept of the owner; nil for whoever is not bounded. The Balancer's mutex is held.
func (b *Balancer) user(owner string) *user {
	if owner == "" {
		return nil
	}
	u := b.users[owner]
	if u == nil {
		maps.DeleteFunc(b.users, func(_ string, u *user) bool {
			return u.streams == 0 && u.jobs == 0 && u.messages.Tokens() >= userRate
		})
		u = &user{messages: rate.NewLimiter(userRate, userRate)}
		b.users[owner] = u
	}
	return u
}

// enter counts a stream of the owner's in, until exit.
func (b *Balancer) enter(owner string) (*user, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.user(owner)
	switch {
	case u == nil:
		return nil, nil
	case u.streams >= userStreams:
		return nil, status.Errorf(codes.ResourceExhausted, "%d streams of %s are open; end some", u.streams, owner)
	}
	u.streams++
	return u, nil
}

func (b *Balancer) exit(u *user) {
	if u == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	u.streams--
}

// charge counts a job's workers as the user's, and the job where it is a new one. Negative counts give back.
func (u *user) charge(jobs, workers int) error {
	switch {
	case u == nil:
		return nil
	case jobs > 0 && u.jobs+jobs > userJobs:
		return status.Errorf(codes.ResourceExhausted, "open.job: %d jobs of this user are open; a core takes %d", u.jobs, userJobs)
	case workers > 0 && u.workers+workers > userWorkers:
		return status.Errorf(codes.ResourceExhausted, "open.workers: %d more than the %d of the user's open jobs; a core takes %d",
			workers, u.workers, userWorkers)
	}
	u.jobs += jobs
	u.workers += workers
	return nil
}

// tell counts the workers of whose sizes a stream of the user's is told. A negative count gives back.
func (b *Balancer) tell(u *user, workers int) error {
	if u == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if workers > 0 && u.told+workers > userTold {
		return status.Errorf(codes.ResourceExhausted,
			"open.workers: this user's streams are told of %d workers; a core tells of %d; open one stream for all ranks",
			u.told, userTold)
	}
	u.told += workers
	return nil
}

// wait waits until the user may send so much.
func (u *user) wait(ctx context.Context, cost int) error {
	if u == nil {
		return nil
	}
	if err := u.messages.WaitN(ctx, min(cost, userRate)); err != nil {
		if ctx.Err() == nil {
			err = context.DeadlineExceeded // the limiter foresees it
		}
		return status.FromContextError(err).Err()
	}
	return nil
}

// costOf is what a message about so many workers counts, of so many bytes: what is parsed of few bytes may be much.
func costOf(workers, bytes int) int { return 1 + max(workers/64, bytes/2048) }
