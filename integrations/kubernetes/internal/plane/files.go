package plane

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// writeFiles writes the key that signs service account tokens and the tokens and
// client configurations of all users.
func (p *Plane) writeFiles() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("plane: %w", err)
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(filepath.Join(p.Dir, "sa.key"), block, 0o600); err != nil {
		return fmt.Errorf("plane: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(p.Dir, "tokens.csv"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("plane: %w", err)
	}
	defer f.Close()
	w := csv.NewWriter(f)
	for _, u := range append([]User{{Name: Admin, Groups: []string{"system:masters"}}}, p.cfg.Users...) {
		secret := make([]byte, 16)
		_, _ = rand.Read(secret) // never fails
		token := hex.EncodeToString(secret)
		p.tokens[u.Name] = token
		if err := w.Write([]string{token, u.Name, u.Name, strings.Join(u.Groups, ",")}); err != nil {
			return fmt.Errorf("plane: %w", err)
		}
	}
	w.Flush()
	return w.Error()
}

// writeKubeconfigs writes the files that Kubeconfig names. Start calls it.
func (p *Plane) writeKubeconfigs() error {
	for user, token := range p.tokens { // a file each, so order cannot matter
		cfg := map[string]any{
			"apiVersion": "v1", "kind": "Config", "current-context": "plane",
			"clusters": []any{map[string]any{"name": "plane", "cluster": map[string]any{"server": p.URL, "certificate-authority": p.CA}}},
			"users":    []any{map[string]any{"name": user, "user": map[string]any{"token": token}}},
			"contexts": []any{map[string]any{"name": "plane", "context": map[string]any{"cluster": "plane", "user": user}}},
		}
		data, err := json.Marshal(cfg)
		if err != nil {
			return fmt.Errorf("plane: %w", err)
		}
		if err := os.WriteFile(p.Kubeconfig(user), data, 0o600); err != nil {
			return fmt.Errorf("plane: %w", err)
		}
	}
	return nil
}

// fileName returns user with whatever has a meaning in file names replaced.
func fileName(user string) string {
	return strings.Map(func(r rune) rune {
		if r == ':' || r == '/' {
			return '-'
		}
		return r
	}, user)
}
