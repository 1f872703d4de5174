package device

import (
	"context"
	"net/url"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/plugin/devices"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

const (
	agentPatience = 500 * time.Millisecond // Nomad waits for the first answer as it starts
	corePatience  = 5 * time.Second
	ratesPause    = 30 * time.Second // between two questions to the core, which every node asks
	mostTypes     = 256              // that the core may be asked for at once
)

// node is what is known of this node, by its agent.
type node struct {
	socket string // path of the agent's
	conn   *grpc.ClientConn
	log    hclog.Logger

	mu        sync.Mutex
	inventory inventory
	speeds    speeds
	toCore    bool      // the agent connects to a core
	ratesNext time.Time // when the core is asked again

	agentTrouble, coreTrouble trouble
}

// newNode prepares the connection to the agent, which is made when it is needed.
func newNode(socket string, log hclog.Logger) (*node, error) {
	target := url.URL{Scheme: "unix", Path: socket} // which may have signs that mean something in a target
	conn, err := grpc.NewClient(target.String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		// It notices soon that the agent is back.
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second, Backoff: backoff.Config{
			BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 2 * time.Second}}))
	if err != nil {
		return nil, err
	}
	return &node{socket: socket, conn: conn, log: log}, nil
}

func (n *node) close() { _ = n.conn.Close() } // fails only if it was closed before

// look asks the agent which devices there are, and whether it connects to a core. Without an answer all stays what it
// was.
func (n *node) look(ctx context.Context, now time.Time) (answered bool) {
	asked, cancel := context.WithTimeout(ctx, agentPatience)
	defer cancel()
	r, err := devices.Ask(asked, n.conn)
	toCore := false
	if err == nil {
		toCore, err = n.leads(asked)
	}
	if ctx.Err() != nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.agentTrouble.tell(n.log, "the agent", err)
	if err != nil {
		n.inventory.excuse()
		n.ratesNext = time.Time{} // who comes back may know another core
		return false
	}
	n.inventory.learn(r, now)
	n.toCore = toCore
	return true
}

// leads asks the agent whether it connects to a core, be that there at the moment or not.
func (n *node) leads(ctx context.Context) (bool, error) {
	_, err := healthv1.NewHealthClient(n.conn).Check(ctx,
		&healthv1.HealthCheckRequest{Service: evenstepv1.Balancer_ServiceDesc.ServiceName})
	switch status.Code(err) {
	case codes.NotFound, codes.Unimplemented:
		return false, nil
	}
	return err == nil, err
}

// rates asks the core, through the agent, how fast workloads run, when that is due. Without an answer speeds stay what
// they were.
func (n *node) rates(ctx context.Context, now time.Time) {
	n.mu.Lock()
	types := n.inventory.types()
	due := n.toCore && len(types) > 0 && !now.Before(n.ratesNext)
	n.mu.Unlock()
	if !due {
		return
	}
	asked, cancel := context.WithTimeout(ctx, corePatience)
	defer cancel()
	r, err := evenstepv1.NewProfilesClient(n.conn).Rates(asked,
		&evenstepv1.RatesRequest{Types: types[:min(len(types), mostTypes)]})
	if ctx.Err() != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ratesNext = now.Add(ratesPause)
	n.coreTrouble.tell(n.log, "the core", err)
	if err == nil {
		n.speeds.learn(r.GetRates(), now)
	}
}

// trouble is told when it begins, becomes another or ends, not each time that it is met.
type trouble struct{ last codes.Code }

func (t *trouble) tell(log hclog.Logger, who string, err error) {
	code := status.Code(err)
	switch {
	case code == t.last:
		return
	case err == nil:
		log.Info(who + " answers")
	default:
		log.Warn(who+" does not answer; what it said before holds", "error", status.Convert(err).Message())
	}
	t.last = code
}
