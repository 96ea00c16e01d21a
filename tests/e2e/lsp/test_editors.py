"""Neovim and Emacs as real clients: what they show for a device site and a finding, and where."""
import os
import shutil
import subprocess

import pytest
from conftest import SERVER

SOURCE = 'import torch\n\nx = torch.zeros(2, 3).to("npu:0")\n'

NEOVIM = """
local out = {}
vim.cmd('edit ' .. vim.env.TEST_FILE)
local id = vim.lsp.start_client({name = 'flagos', cmd = {vim.env.TEST_SERVER, '--devices', 'npu:0'}, root_dir = vim.env.TEST_DIR})
vim.lsp.buf_attach_client(0, id)
local ok = vim.wait(20000, function() return #vim.diagnostic.get(0) > 0 end, 20)
for _, d in ipairs(vim.diagnostic.get(0)) do
  table.insert(out, string.format('diagnostic %d:%d %s %s', d.lnum, d.col, d.source, d.code or d.user_data.lsp.code))
end
vim.api.nvim_win_set_cursor(0, {3, 8})
vim.lsp.buf.hover()
local float
vim.wait(20000, function()
  for _, w in ipairs(vim.api.nvim_list_wins()) do
    if vim.api.nvim_win_get_config(w).relative ~= '' then float = w end
  end
  return float ~= nil
end, 20)
if float then
  for _, line in ipairs(vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(float), 0, -1, false)) do
    table.insert(out, 'hover ' .. line)
  end
end
vim.fn.writefile(out, vim.env.TEST_OUT)
vim.cmd('qa!')
"""

EMACS = """;;; -*- lexical-binding: t -*-
(require 'jsonrpc)
(require 'json)
(let* ((file (getenv "TEST_FILE"))
       (uri (concat "file://" file))
       (published nil)
       (connection (jsonrpc-process-connection
                    :name "flagos"
                    :process (make-process :name "flagos" :command (list (getenv "TEST_SERVER") "--devices" "npu:0")
                                           :connection-type 'pipe :coding 'utf-8-emacs-unix :noquery t
                                           :stderr (get-buffer-create "*stderr*"))
                    :notification-dispatcher (lambda (_c method params)
                                               (when (eq method 'textDocument/publishDiagnostics) (setq published params)))))
       (_ (jsonrpc-request connection :initialize (list :processId nil :rootUri nil :capabilities (list :textDocument (list :hover (list :contentFormat ["plaintext"]))))))
       (_ (jsonrpc-notify connection :initialized (make-hash-table)))
       (text (with-temp-buffer (insert-file-contents file) (buffer-string)))
       (_ (jsonrpc-notify connection :textDocument/didOpen (list :textDocument (list :uri uri :languageId "python" :version 1 :text text))))
       (_ (let ((end (+ (float-time) 20)))
            (while (and (null published) (< (float-time) end)) (accept-process-output nil 0.05))))
       (hover (jsonrpc-request connection :textDocument/hover (list :textDocument (list :uri uri) :position (list :line 2 :character 8)))))
  (with-temp-file (getenv "TEST_OUT")
    (let* ((d (aref (plist-get published :diagnostics) 0))
           (start (plist-get (plist-get d :range) :start)))
      (insert (format "diagnostic %d:%d %s %s\\n" (plist-get start :line) (plist-get start :character) (plist-get d :source) (plist-get d :code))))
    (dolist (line (split-string (plist-get (plist-get hover :contents) :value) "\\n"))
      (insert "hover " line "\\n")))
  (jsonrpc-request connection :shutdown nil)
  (jsonrpc-notify connection :exit nil))
"""


def run(tmp_path, program, script, suffix, arguments):
    assert shutil.which(program), f"{program} is not installed: run ./dev setup"
    source, code, out = tmp_path / "x.py", tmp_path / f"test{suffix}", tmp_path / "out"
    source.write_text(SOURCE)
    code.write_text(script)
    env = {**os.environ, "TEST_FILE": str(source), "TEST_OUT": str(out), "TEST_SERVER": SERVER, "TEST_DIR": str(tmp_path),
           "FLAGOS_RUNTIME_DIR": str(tmp_path / "run"), "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run([program, *[a.format(code) for a in arguments]], env=env, capture_output=True, text=True, timeout=120)
    assert out.exists(), done.stdout + done.stderr
    return out.read_text().splitlines()


@pytest.mark.parametrize("program, script, suffix, arguments", [
    ("nvim", NEOVIM, ".lua", ["--headless", "-u", "NONE", "-i", "NONE", "-n", "-c", "luafile {}"]),
    ("emacs", EMACS, ".el", ["--batch", "-Q", "-l", "{}"]),
], ids=["neovim", "emacs"])
def test_hover_and_diagnostic(tmp_path, program, script, suffix, arguments):
    lines = run(tmp_path, program, script, suffix, arguments)
    assert "diagnostic 2:4 flagos make-then-move" in lines
    shown = "\n".join(line[6:] for line in lines if line.startswith("hover "))
    assert "npu:0" in shown and "Tensor.to" in shown
    assert "needs 24 B (float32)" in shown
    assert "no process attached" in shown
