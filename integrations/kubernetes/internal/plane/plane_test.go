package plane

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

func assets(t *testing.T) string {
	t.Helper()
	dir := os.Getenv(Env)
	if dir == "" {
		if os.Getenv(RequireEnv) == "1" {
			t.Fatalf("%s=1, and %s names no folder", RequireEnv, Env)
		}
		t.Skipf("%s names no folder with etcd and kube-apiserver", Env)
	}
	return dir
}

func TestServerComesBackWithItsData(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	p, err := Start(ctx, Config{Assets: assets(t), Users: []User{{Name: "system:serviceaccount:x:nobody", Groups: []string{"nobodies"}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	space := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kept"}}`
	if code := call(t, p, Admin, http.MethodPost, "/api/v1/namespaces", space); code != http.StatusCreated {
		t.Fatalf("create: %d", code)
	}
	if code := call(t, p, "system:serviceaccount:x:nobody", http.MethodGet, "/api/v1/namespaces/kept", ""); code != http.StatusForbidden {
		t.Errorf("a user without rights gets %d", code)
	}
	if code := call(t, p, Admin, http.MethodGet, "/apis/scheduling.k8s.io/v1beta1/podgroups", ""); code != http.StatusOK {
		t.Errorf("pod groups are not served: %d", code)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := get(ctx, p.client, p.URL+"/readyz", ""); err == nil {
		t.Error("it answers though it was killed")
	}
	if err := p.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if code := call(t, p, Admin, http.MethodGet, "/api/v1/namespaces/kept", ""); code != http.StatusOK {
		t.Errorf("get after restart: %d", code)
	}
	u, err := p.Usage()
	if err != nil || u.CPU <= 0 || u.Peak <= 0 {
		t.Errorf("usage %+v, %v", u, err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(p.Dir); !os.IsNotExist(err) {
		t.Errorf("folder: %v", err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("second stop: %v", err)
	}
}

func call(t *testing.T, p *Plane, user, method, path, body string) int {
	t.Helper()
	req, err := http.NewRequest(method, p.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.Token(user))
	req.Header.Set("Content-Type", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestMissingProgramsAreNamed(t *testing.T) {
	_, err := Start(t.Context(), Config{Assets: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "no etcd") {
		t.Errorf("got %v", err)
	}
}

func TestDeadProgramIsReportedWithItsLog(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := os.WriteFile(dir+"/"+name, []byte("#!/bin/sh\necho no room on this device; exit 3\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Start(t.Context(), Config{Assets: dir})
	if err == nil || !strings.Contains(err.Error(), "no room on this device") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
}
