package nomad

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// requestTime bounds one request to Nomad.
const requestTime = 30 * time.Second

// connect makes a client from Nomad's environment variables: address, region, namespace, token, TLS.
func connect() (*api.Client, *api.Config, error) {
	config := api.DefaultConfig()
	client, err := api.NewClient(config)
	if err != nil {
		return nil, nil, fmt.Errorf("nomad: %w; see NOMAD_ADDR, NOMAD_CACERT, NOMAD_CLIENT_CERT, NOMAD_CLIENT_KEY", err)
	}
	return client, config, nil
}

// query is a GET, decoded.
func (s *Scheduler) query(ctx context.Context, path, namespace string, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	_, err := s.client.Raw().Query(path, out, (&api.QueryOptions{Namespace: namespace}).WithContext(ctx))
	return answered(path, err)
}

// write is a PUT.
func (s *Scheduler) write(ctx context.Context, path, namespace string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	_, err := s.client.Raw().Write(path, in, out, (&api.WriteOptions{Namespace: namespace}).WithContext(ctx))
	return answered(path, err)
}

// answered is what Nomad said of a request, in one line.
func answered(path string, err error) error {
	var answer api.UnexpectedResponseError
	if errors.As(err, &answer) && answer.HasStatusCode() {
		body := strings.Join(strings.Fields(answer.Body()), " ")
		return &refusal{answer.StatusCode(), fmt.Sprintf("nomad: %s: %d %s", place(path), answer.StatusCode(), body)}
	}
	if err != nil {
		return fmt.Errorf("nomad: %s: %w", place(path), err)
	}
	return nil
}

// refusal is an answer of Nomad's that is none of what was hoped for.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

// refused says whether Nomad answered with a status.
func refused(err error, status int) bool {
	var r *refusal
	return errors.As(err, &r) && r.status == status
}

func notFound(err error) bool { return refused(err, http.StatusNotFound) }

// place is a path without its query.
func place(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return path
}

// jobPath is the path of a job, whose id may hold slashes.
func jobPath(id, rest string) string { return "/v1/job/" + url.PathEscape(id) + rest }
