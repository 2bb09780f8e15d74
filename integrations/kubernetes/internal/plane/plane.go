package plane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Env is the environment variable that names the folder of the programs etcd and
// kube-apiserver.
const Env = "KUBE_ASSETS"

// RequireEnv is the environment variable that, as "1", makes a missing plane a
// failure where tests would otherwise be skipped.
const RequireEnv = "REQUIRE_KUBE"

// Admin is the user who may do everything.
const Admin = "admin"

// User is somebody whom the API server knows by a token.
type User struct {
	Name   string   // Name is the user's, such as "system:serviceaccount:default:x".
	Groups []string // Groups are those that the user is in.
}

// Config configures a Plane. Only Assets has no default.
type Config struct {
	Assets string   // Assets is the folder that holds etcd and kube-apiserver.
	Users  []User   // Users are known beside Admin.
	Gates  []string // Gates are further feature gates, as "Name=true".
	Flags  []string // Flags are further flags of the API server.
}

// Plane is a running control plane. Make one with Start.
type Plane struct {
	URL string // URL is where the API server listens.
	CA  string // CA is the file with its certificate.
	Dir string // Dir is the folder with data and logs; Stop removes it.

	cfg    Config
	tokens map[string]string
	parent *parent
	etcd   *process
	api    *process
	flags  []string
	client *http.Client
}

// Start starts a plane and waits until it is ready or ctx ends.
func Start(ctx context.Context, cfg Config) (*Plane, error) {
	if cfg.Assets == "" {
		return nil, fmt.Errorf("plane: %s names no folder", Env)
	}
	assets, err := filepath.Abs(cfg.Assets)
	if err != nil {
		return nil, fmt.Errorf("plane: %w", err)
	}
	cfg.Assets = assets
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(assets, name)); err != nil {
			return nil, fmt.Errorf("plane: no %s: %w", name, err)
		}
	}
	dir, err := os.MkdirTemp("", "plane-")
	if err != nil {
		return nil, fmt.Errorf("plane: %w", err)
	}
	p := &Plane{Dir: dir, cfg: cfg, tokens: make(map[string]string), parent: newParent()}
	if err := p.start(ctx); err != nil {
		err = fmt.Errorf("%w\n%s", err, p.Logs(15))
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Plane) start(ctx context.Context) error {
	if err := p.writeFiles(); err != nil {
		return err
	}
	if err := p.startEtcd(ctx); err != nil {
		return err
	}
	return p.startAPI(ctx)
}

func (p *Plane) startEtcd(ctx context.Context) error {
	client, peer, err := freePort(), freePort(), error(nil)
	url := "http://127.0.0.1:" + strconv.Itoa(client)
	peerURL := "http://127.0.0.1:" + strconv.Itoa(peer)
	p.etcd, err = p.parent.start("etcd", p.Dir, filepath.Join(p.cfg.Assets, "etcd"),
		"--data-dir="+filepath.Join(p.Dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+url, "--advertise-client-urls="+url,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL, "--initial-cluster=default="+peerURL,
		"--log-level=warn", "--quota-backend-bytes=4294967296")
	if err != nil {
		return err
	}
	p.flags = p.apiFlags(url)
	if err := p.writeKubeconfigs(); err != nil {
		return err
	}
	return p.poll(ctx, p.etcd, func(ctx context.Context) error {
		return get(ctx, http.DefaultClient, url+"/health", "")
	})
}

func (p *Plane) apiFlags(etcd string) []string {
	port := freePort()
	p.URL = "https://127.0.0.1:" + strconv.Itoa(port)
	p.CA = filepath.Join(p.Dir, "cert", "apiserver.crt")
	gates := append([]string{"GenericWorkload=true"}, p.cfg.Gates...)
	key := filepath.Join(p.Dir, "sa.key")
	return append([]string{
		"--etcd-servers=" + etcd,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--cert-dir=" + filepath.Join(p.Dir, "cert"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + key, "--service-account-signing-key-file=" + key,
		"--token-auth-file=" + filepath.Join(p.Dir, "tokens.csv"), "--authorization-mode=RBAC",
		"--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
		// Nobody here makes default service accounts, or lifts the taint that
		// the second would put on every new node.
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--feature-gates=" + strings.Join(gates, ","),
		"--runtime-config=scheduling.k8s.io/v1beta1=true",
	}, p.cfg.Flags...)
}

func (p *Plane) startAPI(ctx context.Context) error {
	var err error
	if p.api, err = p.parent.start("kube-apiserver", p.Dir, filepath.Join(p.cfg.Assets, "kube-apiserver"), p.flags...); err != nil {
		return err
	}
	return p.poll(ctx, p.api, func(ctx context.Context) error {
		if p.client == nil {
			if err := p.trust(); err != nil {
				return err
			}
		}
		return get(ctx, p.client, p.URL+"/readyz", p.tokens[Admin])
	})
}

// trust makes the client that knows the certificate which the API server has made
// for itself.
func (p *Plane) trust() error {
	pem, err := os.ReadFile(p.CA)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return errors.New("plane: no certificate yet")
	}
	p.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	return nil
}

// Kill kills the API server at once, as a lost machine would, and leaves etcd.
func (p *Plane) Kill() error { return p.api.kill() }

// Restart starts the API server again after Kill, on the same port with the same
// data, and waits until it is ready or ctx ends.
func (p *Plane) Restart(ctx context.Context) error { return p.startAPI(ctx) }

// Stop ends both processes and removes the folder. It may be called again.
func (p *Plane) Stop() error {
	if p.client != nil {
		p.client.CloseIdleConnections()
	}
	http.DefaultClient.CloseIdleConnections()
	var errs []error
	// A graceful end would wait for every open watch.
	for _, proc := range []*process{p.api, p.etcd} {
		if proc != nil {
			errs = append(errs, proc.kill())
		}
	}
	p.parent.close()
	return errors.Join(append(errs, os.RemoveAll(p.Dir))...)
}

// Token returns the token of a user, and "" for one who is not known.
func (p *Plane) Token(user string) string { return p.tokens[user] }

// Kubeconfig returns the file with which clients act as user, who must be known.
func (p *Plane) Kubeconfig(user string) string {
	return filepath.Join(p.Dir, fileName(user)+".kubeconfig")
}

// Logs returns the last lines of both logs, up to n of each.
func (p *Plane) Logs(n int) string {
	var b strings.Builder
	for _, name := range []string{"etcd", "kube-apiserver"} {
		data, err := os.ReadFile(filepath.Join(p.Dir, name+".log"))
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimSpace(string(data)), "\n")
		fmt.Fprintf(&b, "%s:\n%s\n", name, strings.Join(lines[max(0, len(lines)-n):], "\n"))
	}
	return b.String()
}

// poll calls ready until it succeeds, the process ends, or ctx does.
func (p *Plane) poll(ctx context.Context, proc *process, ready func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("plane: %s is not ready: %w (%w)", proc.name, ctx.Err(), err)
		case <-proc.done:
			return fmt.Errorf("plane: %s ended: %v", proc.name, proc.err)
		case <-tick.C:
		}
	}
}

func get(ctx context.Context, c *http.Client, url, token string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("plane: %s: %s", url, resp.Status)
	}
	return nil
}

// freePort returns a port that nobody had a moment ago.
func freePort() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0 // whoever is given it fails and says so
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
