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
-- A line typed above: the diagnostic goes down with its line.
vim.api.nvim_buf_set_lines(0, 0, 0, false, {'# one line more'})
vim.wait(20000, function()
  local d = vim.diagnostic.get(0)[1]
  return d ~= nil and d.lnum == 3
end, 20)
for _, d in ipairs(vim.diagnostic.get(0)) do table.insert(out, string.format('moved %d:%d', d.lnum, d.col)) end
-- The fix, as the editor applies it.
vim.api.nvim_win_set_cursor(0, {4, 8})
local params = vim.lsp.util.make_range_params()
params.context = {diagnostics = {}}
local replies = vim.lsp.buf_request_sync(0, 'textDocument/codeAction', params, 20000)
for _, reply in pairs(replies) do
  for _, action in ipairs(reply.result) do table.insert(out, 'action ' .. action.title) end
  local action = reply.result[1]
  table.insert(out, action.edit and 'with its edit' or 'to be resolved')   -- this editor can
  for _, resolved in pairs(vim.lsp.buf_request_sync(0, 'codeAction/resolve', action, 20000)) do action = resolved.result end
  vim.lsp.util.apply_workspace_edit(action.edit, 'utf-16')
end
for _, line in ipairs(vim.api.nvim_buf_get_lines(0, 0, -1, false)) do table.insert(out, 'text ' .. line) end
local gone = vim.wait(20000, function() return #vim.diagnostic.get(0) == 0 end, 20)
table.insert(out, 'gone ' .. tostring(gone))
local completed = vim.lsp.buf_request_sync(0, 'textDocument/documentSymbol', {textDocument = vim.lsp.util.make_text_document_params()}, 20000)
for _, reply in pairs(completed) do
  for _, symbol in ipairs(reply.result) do table.insert(out, string.format('symbol %s %s %d', symbol.name, symbol.detail or '', (symbol.range or symbol.location.range).start.line)) end
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
       (lines nil)
       (connection (jsonrpc-process-connection
                    :name "flagos"
                    :process (make-process :name "flagos" :command (list (getenv "TEST_SERVER") "--devices" "npu:0")
                                           :connection-type 'pipe :coding 'utf-8-emacs-unix :noquery t
                                           :stderr (get-buffer-create "*stderr*"))
                    :notification-dispatcher (lambda (_c method params)
                                               (when (eq method 'textDocument/publishDiagnostics) (setq published params)))))
       (document (list :uri uri))
       (say (lambda (&rest parts) (push (apply #'format parts) lines)))
       (await (lambda (version)
                (let ((end (+ (float-time) 20)))
                  (while (and (not (and published (= (plist-get published :version) version))) (< (float-time) end)) (accept-process-output nil 0.05)))))
       (tell-diagnostics (lambda (word)
                           (mapc (lambda (d)
                                   (let ((start (plist-get (plist-get d :range) :start)))
                                     (funcall say "%s %d:%d %s %s" word (plist-get start :line) (plist-get start :character) (plist-get d :source) (plist-get d :code))))
                                 (plist-get published :diagnostics)))))
  (jsonrpc-request connection :initialize (list :processId nil :rootUri nil :capabilities (list :textDocument (list :hover (list :contentFormat ["plaintext"])))))
  (jsonrpc-notify connection :initialized (make-hash-table))
  (with-temp-buffer
    (insert-file-contents file)
    (jsonrpc-notify connection :textDocument/didOpen (list :textDocument (list :uri uri :languageId "python" :version 1 :text (buffer-string))))
    (funcall await 1)
    (funcall tell-diagnostics "diagnostic")
    (let ((hover (jsonrpc-request connection :textDocument/hover (list :textDocument document :position (list :line 2 :character 8)))))
      (dolist (line (split-string (plist-get (plist-get hover :contents) :value) "\\n"))
        (funcall say "hover %s" line)))
    ;; A line typed above: the diagnostic goes down with its line.
    (goto-char (point-min))
    (insert "# one line more\\n")
    (jsonrpc-notify connection :textDocument/didChange
                    (list :textDocument (list :uri uri :version 2)
                          :contentChanges (vector (list :range (list :start (list :line 0 :character 0) :end (list :line 0 :character 0)) :text "# one line more\\n"))))
    (funcall await 2)
    (funcall tell-diagnostics "moved")
    ;; The fix, applied to the buffer from its end to its start.
    (let* ((actions (jsonrpc-request connection :textDocument/codeAction
                                     (list :textDocument document :range (list :start (list :line 3 :character 8) :end (list :line 3 :character 8)) :context (list :diagnostics []))))
           (edits (append (plist-get (plist-get (plist-get (aref actions 0) :edit) :changes) (intern (concat ":" uri))) nil))
           (place (lambda (p) (goto-char (point-min)) (forward-line (plist-get p :line)) (+ (point) (plist-get p :character)))))
      (mapc (lambda (a) (funcall say "action %s" (plist-get a :title))) actions)
      (dolist (e (sort edits (lambda (a b) (> (plist-get (plist-get (plist-get a :range) :start) :character) (plist-get (plist-get (plist-get b :range) :start) :character)))))
        (let ((start (funcall place (plist-get (plist-get e :range) :start))) (end (funcall place (plist-get (plist-get e :range) :end))))
          (delete-region start end)
          (goto-char start)
          (insert (plist-get e :newText)))))
    (dolist (line (split-string (buffer-string) "\\n" t)) (funcall say "text %s" line))
    (jsonrpc-notify connection :textDocument/didChange (list :textDocument (list :uri uri :version 3) :contentChanges (vector (list :text (buffer-string)))))
    (funcall await 3)
    (funcall say "gone %s" (if (= 0 (length (plist-get published :diagnostics))) "true" "false"))
    (mapc (lambda (s) (funcall say "symbol %s  %d" (plist-get s :name) (plist-get (plist-get (plist-get (plist-get s :location) :range) :start) :line)))
          (jsonrpc-request connection :textDocument/documentSymbol (list :textDocument document))))
  (with-temp-file (getenv "TEST_OUT")
    (insert (mapconcat #'identity (nreverse lines) "\\n")))
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
    ("nvim", NEOVIM, ".lua", ["--headless", "-u", "NONE", "-i", "NONE", "-n", "-c", "luafile {}", "-c", "qa!"]),
    ("emacs", EMACS, ".el", ["--batch", "-Q", "-l", "{}"]),
], ids=["neovim", "emacs"])
def test_what_the_editor_shows_and_where(tmp_path, program, script, suffix, arguments):
    lines = run(tmp_path, program, script, suffix, arguments)
    assert "diagnostic 2:4 flagos make-then-move" in lines
    shown = "\n".join(line[6:] for line in lines if line.startswith("hover "))
    assert "npu:0" in shown and "Tensor.to" in shown
    assert "needs 24 B (float32)" in shown
    assert "no process attached" in shown
    assert [line for line in lines if line.startswith("moved ")][0].startswith("moved 3:4")
    actions = [line[7:] for line in lines if line.startswith("action ")]
    assert len(actions) == 2 and actions[1] == "Ignore make-then-move on this line"
    # Emacs leaves the empty line out.
    assert [line[5:] for line in lines if line.startswith("text ") and line != "text "] == [
        "# one line more", "import torch", 'x = torch.zeros(2, 3, device="npu:0")']
    assert "gone true" in lines
    assert [line for line in lines if line.startswith("symbol torch.zeros")][0].endswith(" 3")
